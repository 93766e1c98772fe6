"""A selection of rows of a packed batch, for results that are computed only for these rows.

Examples: masked tokens, the only rows that the loss reads; first tokens, the only rows that ``cls``
pooling reads; global tokens, which attend beyond a window.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError, ShapeError
from encoder_engine.packing.bucket import FilledSequences
from encoder_engine.packing.sequences import Sequences, moved
from encoder_engine.packing.tree import register_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

__all__ = ["SelectedRows", "assemble_rows"]


class SelectionGroup(NamedTuple):
    """The n sequences of one length that have the same number of selected rows, above 0."""

    length: int
    rows: Tensor  # int64 [n * length] of the packed tensor
    selected: Tensor  # int64 [n * number], places in the list of selected rows
    places: Tensor  # int64 [n, number] of the selected rows in their sequences


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """A selection of M rows of packed ``sequences``, made once a batch and shared by all layers.

    ``rows``: int32 or int64 [M], ascending, without repeats, on the sequences' device. A CUDA
    tensor is copied to the host once, M integers.

    Raises :class:`BatchError` for other rows, and for rows beyond the sequences.
    """

    rows: Tensor
    sequences: Sequences

    # The offsets of the selected rows alone, by sequence.
    within: Sequences = field(init=False, repr=False)
    # Each row's position within its sequence, int32 [M].
    places: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = self.rows
        if rows.dtype not in (torch.int32, torch.int64) or rows.dim() != 1:
            raise BatchError(
                f"rows must be int32 or int64 [M], got {rows.dtype} {list(rows.shape)}"
            )
        if rows.device != self.sequences.device:
            raise BatchError(f"rows are on {rows.device}, the sequences on {self.sequences.device}")
        if len(rows) and (self.indices[0] < 0 or self.indices[-1] >= self.sequences.num_tokens):
            raise BatchError(
                f"rows run from {self.indices[0]} to {self.indices[-1]}, the sequences hold rows 0 "
                f"to {self.sequences.num_tokens - 1}"
            )
        falls = np.flatnonzero(np.diff(self.indices) <= 0)
        if len(falls):
            place = int(falls[0]) + 1
            raise BatchError(
                f"rows[{place}] is {self.indices[place]} after {self.indices[place - 1]}; "
                "list every row once, in ascending order"
            )
        counts = np.bincount(self.owners, minlength=len(self.sequences))
        within = Sequences.from_lengths(counts.tolist(), device=rows.device)
        places = self.indices - self.sequences.offsets[self.owners]
        object.__setattr__(self, "within", within)
        object.__setattr__(self, "places", self._kept(places.astype(np.int32)))

    @classmethod
    def of_unattended(cls, sequences: Sequences, unattended: Sequence[int]) -> SelectedRows:
        """Select all rows as queries, and only the leading rows of each sequence as keys.

        unattended: the number of trailing rows of each sequence, which nothing attends to.

        Each given sequence becomes two of the selection's ``sequences``: its leading rows, the keys
        of all its rows, and its trailing rows, which are keys of no row.
        """
        device = sequences.device
        trailing = np.asarray(unattended, dtype=np.int64)
        lengths = np.asarray(sequences.lengths, dtype=np.int64)
        parts = np.stack([lengths - trailing, trailing], axis=1).reshape(-1)
        queries = np.stack([lengths, np.zeros_like(lengths)], axis=1).reshape(-1)
        selected = assemble_rows(
            torch.arange(sequences.num_tokens, device=device),
            Sequences.from_lengths(parts.tolist(), device=device),
            Sequences.from_lengths(queries.tolist(), device=device),
            sequences.positions.to(torch.int32),
        )
        selected.__dict__["indices"] = np.arange(sequences.num_tokens)
        return selected

    @classmethod
    def of_first(cls, sequences: Sequences) -> SelectedRows:
        """Select the first row of each non-empty sequence, without a copy from the device."""
        if isinstance(sequences, FilledSequences):
            rows, filled = sequences.firsts
            return assemble_rows(rows, sequences, filled, torch.zeros_like(rows, dtype=torch.int32))
        there = sequences.lengths > 0
        with torch.inference_mode(False):
            rows = moved(torch.from_numpy(sequences.offsets[:-1][there]), sequences.device)
            within = Sequences.from_lengths(
                there.astype(np.int64).tolist(), device=sequences.device
            )
            places = torch.zeros(len(rows), dtype=torch.int32, device=sequences.device)
        selected = assemble_rows(rows, sequences, within, places)
        selected.__dict__["indices"] = sequences.offsets[:-1][there]
        return selected

    def __len__(self) -> int:
        return len(self.rows)

    def check_of(self, sequences: Sequences, name: str = "rows") -> None:
        """Raise :class:`ShapeError` unless the rows were selected from ``sequences`` or equal ones.

        ``name``: the argument that the message names. In a compiled graph nothing is checked.
        """
        if self.sequences is sequences or torch.compiler.is_compiling():
            return
        same_device = self.sequences.device == sequences.device
        if not same_device or self.sequences.offsets.tolist() != sequences.offsets.tolist():
            raise ShapeError(
                f"{name} select from other sequences; make them by SelectedRows(rows, sequences)"
            )

    @cached_property
    def indices(self) -> npt.NDArray[np.int64]:
        """The selected ``rows`` in the CPU's memory, int64 [M]."""
        return self.rows.detach().cpu().numpy().astype(np.int64)

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """The index of each selected row's sequence, in the CPU's memory, int64 [M]."""
        return np.searchsorted(self.sequences.offsets, self.indices, side="right") - 1

    @cached_property
    def groups(self) -> tuple[SelectionGroup, ...]:
        """Groups of sequences with equal length and equal number of selected rows."""
        found = []
        for length, members, selected in self._host_groups():
            starts = self.sequences.offsets[members][:, None]
            found.append(
                SelectionGroup(
                    length=length,
                    rows=self._kept((starts + np.arange(length)).reshape(-1)),
                    selected=self._kept(selected.reshape(-1)),
                    places=self._kept(self.indices[selected] - starts),
                )
            )
        return tuple(found)

    def _host_groups(
        self,
    ) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield each group's length, member sequences [n] and selected rows [n, number]."""
        sizes = np.stack([self.sequences.lengths, self.within.lengths], axis=1)
        for length, number in np.unique(sizes[sizes[:, 1] > 0], axis=0).tolist():
            members = np.flatnonzero((sizes == (length, number)).all(axis=1))
            yield length, members, self.within.offsets[members][:, None] + np.arange(number)

    @cached_property
    def grouped_order(self) -> Tensor | None:
        """The index of each row in the joined :attr:`groups`, int64 [M].

        None: the joined groups are already in row order.
        """
        joined = np.concatenate([selected.reshape(-1) for *_, selected in self._host_groups()])
        unmoved = np.arange(len(joined))
        return None if np.array_equal(joined, unmoved) else self._kept(np.argsort(joined))

    def shared_with(self, other: SelectedRows) -> tuple[Tensor, SelectedRows]:
        """Return the rows that are in both selections: their indices in this one, and a selection.

        The indices are int64. The returned selection has these rows alone.
        """
        places = np.flatnonzero(np.isin(self.indices, other.indices))
        both = self._kept(self.indices[places])
        return self._kept(places), SelectedRows(both, self.sequences)

    def to(self, device: str | torch.device) -> SelectedRows:
        """Return the selection on another device."""
        if torch.device(device) == self.rows.device:
            return self
        parts = (self.sequences.to(device), self.within.to(device), moved(self.places, device))
        selected = assemble_rows(moved(self.rows, device), *parts)
        selected.__dict__["indices"] = self.indices
        return selected

    def _kept(self, values: npt.NDArray[np.integer]) -> Tensor:
        """Return values as a tensor on the rows' device, which training can use.

        It is made outside of inference mode.
        """
        with torch.inference_mode(False):
            return moved(torch.from_numpy(values), self.rows.device)


def assemble_rows(
    rows: Tensor, sequences: Sequences, within: Sequences, places: Tensor
) -> SelectedRows:
    """Return a selection of parts that are known to be valid, without validation.

    ``within``: the selected rows as sequences; ``places``: their positions in ``sequences``.
    """
    selected = object.__new__(SelectedRows)
    for name, leaf in zip(_LEAVES, (rows, sequences, within, places), strict=True):
        object.__setattr__(selected, name, leaf)
    return selected


_LEAVES = ("rows", "sequences", "within", "places")
register_tree(
    SelectedRows,
    names=_LEAVES,
    constants=lambda _: None,
    assemble=lambda leaves, _: assemble_rows(*leaves),
)
