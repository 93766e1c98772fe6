"""The offsets of packed sequences, and the layouts that operations derive from them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError, ImplementationError
from encoder_engine.packing.tree import register_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["Device", "LengthGroup", "Sequences", "assemble", "moved"]

Device = str | torch.device
Value = TypeVar("Value")


class LengthGroup(NamedTuple):
    """The sequences of one length.

    ``members``: the indices of these sequences, int64 [n].
    ``rows``: the n * length rows of a packed tensor; a slice if they are contiguous.
    """

    length: int
    members: Tensor
    rows: Tensor | slice


@dataclass(frozen=True, eq=False)
class Sequences:
    """The offsets of the sequences of a packed tensor.

    ``cu_seqlens``: int32 [B + 1] on the device of the tensors it describes.
    ``host_offsets``: the same offsets on the host, int64, copied when the object is made, so that
    reading lengths later does not wait for a GPU.

    Raises :class:`BatchError` where ``cu_seqlens`` is not int32, not 1-D, does not start at 0, or
    decreases.
    """

    cu_seqlens: Tensor

    host_offsets: Tensor = field(init=False, repr=False)
    _memory: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cu = self.cu_seqlens
        if not isinstance(cu, Tensor) or cu.dtype != torch.int32 or cu.dim() != 1 or len(cu) == 0:
            found = f"{cu.dtype} {list(cu.shape)}" if isinstance(cu, Tensor) else type(cu).__name__
            raise BatchError(f"cu_seqlens must be a torch.int32 tensor [B + 1], got {found}")
        _fill(self, cu, cu.detach().cpu().long(), None)
        offsets = self.offsets
        if offsets[0] != 0:
            raise BatchError(f"cu_seqlens must start at 0, got {offsets[0]}")
        lengths = offsets[1:] - offsets[:-1]
        falls = lengths < 0
        if falls.any():
            row = int(falls.argmax())
            raise BatchError(
                f"cu_seqlens must not decrease, but sequence {row} would run from {offsets[row]} "
                f"to {offsets[row + 1]}",
                row=row,
            )
        self._memory.update(lengths=lengths, num_tokens=int(offsets[-1]))

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], *, device: Device = "cpu") -> Sequences:
        """Return the offsets of concatenated sequences of these lengths.

        Raises :class:`BatchError` for a negative length, and for more than 2^31 - 1 tokens.
        """
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(np.asarray(lengths, dtype=np.int64), out=offsets[1:])
        if len(offsets) and offsets[-1] > np.iinfo(np.int32).max:
            raise BatchError(f"{offsets[-1]} tokens exceed a batch's maximum of 2^31 - 1; split it")
        # Checked on the host, whose copy it keeps: reading one back would wait for the device.
        return cls(torch.from_numpy(offsets.astype(np.int32))).to(device)

    @classmethod
    def _of_parts(cls, cu_seqlens: Tensor, host_offsets: Tensor, num_tokens: int | None) -> Self:
        sequences = object.__new__(cls)
        _fill(sequences, cu_seqlens, host_offsets, num_tokens)
        return sequences

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """``cu_seqlens`` in the CPU's memory, int64 [B + 1]."""
        if torch.compiler.is_compiling():
            raise ImplementationError(
                "this implementation reads the lengths on the host, which a compiled graph does "
                "not have; request another one, or call it outside of torch.compile"
            )
        return self.host_offsets.numpy()

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of tokens of each sequence, on the host, int64 [B]."""
        return self._remember("lengths", lambda: np.diff(self.offsets))

    @property
    def max_seqlen(self) -> int:
        """The number of tokens of the longest sequence; 0 for an empty batch."""
        return self._remember("max_seqlen", lambda: int(self.lengths.max(initial=0)))

    @property
    def common_length(self) -> int:
        """The length of every sequence, by the host's copy; 0: lengths differ."""
        return self.max_seqlen if len(self) * self.max_seqlen == self.num_tokens else 0

    @property
    def num_tokens(self) -> int:
        """The number of rows of the packed tensors, T."""
        return self._remember("num_tokens", lambda: int(self.offsets[-1]))

    @property
    def device(self) -> torch.device:
        """The device of ``cu_seqlens``."""
        return self.cu_seqlens.device

    @property
    def sequence_ids(self) -> Tensor:
        """The index of each row's sequence, int64 [T]."""
        return self._remember("sequence_ids", self._make_sequence_ids)

    def _make_sequence_ids(self) -> Tensor:
        rows = torch.arange(self.num_tokens, dtype=torch.int32, device=self.device)
        return torch.searchsorted(self.cu_seqlens, rows, right=True) - 1

    @property
    def positions(self) -> Tensor:
        """The position of each row within its sequence, from 0, int64 [T]."""
        return self._remember("positions", self._make_positions)

    def _make_positions(self) -> Tensor:
        if self.device.type == "cpu" and not torch.compiler.is_compiling():
            starts = np.repeat(self.offsets[:-1], self.lengths)
            return torch.from_numpy(np.arange(self.num_tokens) - starts)
        rows = torch.arange(self.num_tokens, device=self.device)
        return rows - self.cu_seqlens[self.sequence_ids]

    @property
    def length_groups(self) -> tuple[LengthGroup, ...]:
        """The groups of sequences of equal length, by first appearance, without empty sequences."""
        return self._remember("length_groups", lambda: tuple(self._make_length_groups()))

    def _make_length_groups(self) -> Iterator[LengthGroup]:
        for length, members, rows in self._host_groups():
            yield LengthGroup(
                length=length,
                members=self._on_device(members),
                rows=rows if isinstance(rows, slice) else self._on_device(rows),
            )

    def _host_groups(self) -> Iterator[tuple[int, Integers, Integers | slice]]:
        """Yield the fields of each of the :attr:`length_groups`, as NumPy arrays."""
        lengths, firsts = np.unique(self.lengths, return_index=True)
        for length in lengths[np.argsort(firsts)]:
            if length == 0:
                continue
            members = np.flatnonzero(self.lengths == length)
            starts = self.offsets[members]
            rows: Integers | slice = slice(int(starts[0]), int(starts[-1] + length))
            if members[-1] - members[0] + 1 != len(members):
                rows = (starts[:, None] + np.arange(length)).reshape(-1)
            yield int(length), members, rows

    @property
    def grouped_rows(self) -> Tensor | None:
        """The rows of all :attr:`length_groups` in turn, int64 [T]; None: they are 0 to T - 1."""
        return self._remember("grouped_rows", self._make_grouped_rows)

    def _make_grouped_rows(self) -> Tensor | None:
        rows = self._host_grouped_rows
        return None if rows is None else self._on_device(rows)

    @property
    def _host_grouped_rows(self) -> Integers | None:
        return self._remember("host_grouped_rows", self._join_groups)

    def _join_groups(self) -> Integers | None:
        places = np.arange(self.num_tokens)
        groups = [places[rows] for _, _, rows in self._host_groups()]
        joined = np.concatenate(groups) if groups else places
        return None if np.array_equal(joined, places) else joined

    @property
    def grouped_order(self) -> Tensor | None:
        """Where each row is in :attr:`grouped_rows`, int64 [T]; None: rows are in that order."""
        return self._remember("grouped_order", self._make_grouped_order)

    def _make_grouped_order(self) -> Tensor | None:
        rows = self._host_grouped_rows
        if rows is None:
            return None
        order = np.empty(self.num_tokens, np.int64)
        order[rows] = np.arange(self.num_tokens)
        return self._on_device(order)

    def _on_device(self, values: Integers) -> Tensor:
        return moved(torch.from_numpy(values), self.device)

    def tiles(self, block: int) -> Tensor:
        """Return all blocks of rows: int32 [n, 2], (sequence, block), longest sequences first.

        Cached by block size: all layers share it.
        """
        cut = _tiles_in_graph if torch.compiler.is_compiling() else _tiles
        return self._remember(
            f"tiles {block}", lambda: cut(self.cu_seqlens, self.host_offsets, block)
        )

    def zero_padding_rows(self, rows_T: Tensor) -> Tensor:
        """Return the rows [T, ...] unchanged; subclasses zero those that no sequence has."""
        return rows_T

    def to(self, device: Device) -> Sequences:
        """Return the same offsets on another device."""
        if torch.device(device) == self.device:
            return self
        known = self._memory.get("num_tokens")
        return assemble(moved(self.cu_seqlens, device), self.host_offsets, known)

    def in_graph(self, num_tokens: int) -> Sequences:
        """Return these offsets without cached layouts, for a compiled graph.

        Derived layouts are then computed once within the graph.
        """
        return assemble(self.cu_seqlens, self.host_offsets, num_tokens)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without cached layouts."""
        return self.__dict__ | {"_memory": {}}

    def _remember(self, name: str, make: Callable[[], Value]) -> Value:
        if name not in self._memory:
            # A tensor made in inference mode could not train.
            with torch.inference_mode(False):
                self._memory[name] = make()
        found: Value = self._memory[name]
        return found


def assemble(cu_seqlens: Tensor, host_offsets: Tensor, num_tokens: int | None = None) -> Sequences:
    """Make a :class:`Sequences` of offsets that are known to be valid, without validation."""
    return Sequences._of_parts(cu_seqlens, host_offsets, num_tokens)


def _fill(
    sequences: Sequences, cu_seqlens: Tensor, host_offsets: Tensor, num_tokens: int | None
) -> None:
    object.__setattr__(sequences, "cu_seqlens", cu_seqlens)
    object.__setattr__(sequences, "host_offsets", host_offsets)
    memory = {} if num_tokens is None else {"num_tokens": num_tokens}
    object.__setattr__(sequences, "_memory", memory)


def moved(tensor: Tensor, device: Device) -> Tensor:
    """Return a tensor on a device; copies to a CUDA device are asynchronous."""
    kind = torch.device(device).type
    if kind == "cuda" and tensor.device.type == "cpu" and not torch.compiler.is_compiling():
        # From other memory the driver may wait. The allocator keeps the copy until it was read.
        tensor = tensor.pin_memory()
    # A copy to the host must finish before the host reads it.
    return tensor.to(device, non_blocking=kind != "cpu")


def _tiles(cu_seqlens: Tensor, host_offsets: Tensor, block: int) -> Tensor:
    lengths = np.diff(host_offsets.numpy())
    counts = -(-lengths // block)
    order = np.argsort(-lengths, kind="stable")
    owners = np.repeat(order, counts[order])
    firsts = np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
    blocks = np.arange(len(owners)) - firsts
    cut = np.stack([owners, blocks], axis=1).astype(np.int32)
    return moved(torch.from_numpy(cut), cu_seqlens.device)


# The number of tiles depends on values: in a graph it is a data-dependent size of one operator.
_tiles_in_graph = torch.library.custom_op("encoder_engine::tiles", _tiles, mutates_args=())


@_tiles_in_graph.register_fake
def _(cu_seqlens: Tensor, *_: object) -> Tensor:
    return cu_seqlens.new_empty((torch.library.get_ctx().new_dynamic_size(), 2))


register_tree(
    Sequences,
    names=("cu_seqlens", "host_offsets"),
    constants=lambda _: None,
    assemble=lambda leaves, _: assemble(*leaves),
)
