"""A batch of packed token sequences on one device, validated at construction."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError, SequenceLengthError, TokenIdError
from encoder_engine.packing.sequences import Device, Sequences, assemble, moved
from encoder_engine.packing.tree import register_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["Limits", "PackedBatch", "pack"]

_ID_DTYPES = (torch.int32, torch.int64)
_COLUMNS = ("input_ids", "token_type_ids", "position_ids")


class Limits(NamedTuple):
    """The sizes of a model's tables; a batch with larger ids or longer texts is refused.

    ``num_segments``: 0 where the model has no segments, and takes any token types.
    """

    vocab_size: int
    num_segments: int
    num_positions: int
    max_length: int

    def cover(self, checked: Limits) -> bool:
        """Return whether a batch that is within ``checked`` is also within these limits."""
        has_types = self.num_segments == 0 or 0 < checked.num_segments <= self.num_segments
        return has_types and (
            checked.vocab_size <= self.vocab_size
            and checked.num_positions <= self.num_positions
            and checked.max_length <= self.max_length
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedBatch:
    """B token sequences, concatenated, validated when made.

    ``input_ids``: int32 or int64 [T].
    ``sequences``: the offsets of the sequences.
    ``token_type_ids``: like ``input_ids``; None: all zero.
    ``position_ids``: like ``input_ids``; None: from 0 in each sequence.
    ``vocab_size``: where given, ids are checked against it once, here.

    Raises :class:`BatchError` for tensors whose sizes, dtypes or devices contradict each other, and
    :class:`TokenIdError` for an id outside the vocabulary, with the index of its sequence in
    ``row``.
    """

    input_ids: Tensor
    sequences: Sequences
    token_type_ids: Tensor | None = None
    position_ids: Tensor | None = None
    vocab_size: int | None = None

    # The limits it was checked against: another check on a GPU would wait for the device.
    _limits: Limits | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.sequences, Sequences):
            raise BatchError(
                f"sequences must be a Sequences, got {type(self.sequences).__name__}; "
                "wrap cu_seqlens as Sequences(cu_seqlens)"
            )
        for name in _COLUMNS:
            self._check_column(name, getattr(self, name))
        if self.vocab_size is not None:
            self._check_range("token id", self.input_ids, self.vocab_size)

    def _check_column(self, name: str, column: Tensor | None) -> None:
        if column is None and name != "input_ids":
            return
        if not isinstance(column, Tensor) or column.dtype not in _ID_DTYPES or column.dim() != 1:
            found = (
                f"{column.dtype} {list(column.shape)}"
                if isinstance(column, Tensor)
                else type(column).__name__
            )
            raise BatchError(f"{name} must be an int32 or int64 tensor [T], got {found}")
        if len(column) != self.sequences.num_tokens:
            raise BatchError(
                f"{name} has {len(column)} tokens, cu_seqlens ends at {self.sequences.num_tokens}"
            )
        if column.device != self.sequences.device:
            raise BatchError(
                f"{name} is on {column.device}, cu_seqlens on {self.sequences.device}; "
                "move the batch as a whole with .to(device)"
            )

    def _check_range(self, what: str, values: Tensor, limit: int) -> None:
        if len(values) == 0:
            return
        low, high = (int(v) for v in torch.aminmax(values))
        if low >= 0 and high < limit:
            return
        place = int(((values < 0) | (values >= limit)).nonzero()[0])
        row = int(np.searchsorted(self.sequences.offsets, place, side="right")) - 1
        raise TokenIdError(
            f"{what} {int(values[place])} at row {row}, position "
            f"{place - int(self.sequences.offsets[row])} lies outside 0..{limit - 1}; "
            "use the model's own tokenizer",
            row=row,
        )

    @classmethod
    def from_numpy(
        cls,
        *,
        input_ids: npt.NDArray[np.integer],
        cu_seqlens: npt.NDArray[np.integer],
        token_type_ids: npt.NDArray[np.integer] | None = None,
        vocab_size: int | None = None,
        device: Device = "cpu",
    ) -> PackedBatch:
        """Make a batch from numpy arrays, without a copy on the CPU, and move it to a device."""
        batch = cls(
            input_ids=torch.from_numpy(input_ids),
            sequences=Sequences(torch.from_numpy(cu_seqlens)),
            token_type_ids=None if token_type_ids is None else torch.from_numpy(token_type_ids),
            vocab_size=vocab_size,
        )
        return batch.to(device)

    @property
    def cu_seqlens(self) -> Tensor:
        """The first row of each sequence, then T: int32 [B + 1]."""
        return self.sequences.cu_seqlens

    @property
    def max_seqlen(self) -> int:
        """The number of tokens of the longest sequence."""
        return self.sequences.max_seqlen

    @property
    def num_tokens(self) -> int:
        """The number of rows of the packed tensors, T."""
        return self.sequences.num_tokens

    @property
    def device(self) -> torch.device:
        """The device of the batch's tensors."""
        return self.input_ids.device

    def __len__(self) -> int:
        return len(self.sequences)

    def to(self, device: Device) -> PackedBatch:
        """Return the batch on another device, without checking it again."""
        if torch.device(device) == self.device:
            return self
        columns = (self.input_ids, self.token_type_ids, self.position_ids)
        return _assemble(
            [None if column is None else moved(column, device) for column in columns],
            self.sequences.to(device),
            self.vocab_size,
            self._limits,
        )

    def with_ids(self, input_ids: Tensor) -> PackedBatch:
        """Return the batch with other, unchecked token ids of the same vocabulary."""
        columns = [input_ids, self.token_type_ids, self.position_ids]
        return _assemble(columns, self.sequences, self.vocab_size, self._limits)

    def checked(self, limits: Limits) -> PackedBatch:
        """Return this batch, after a check against a model's tables if there was none before.

        Raises :class:`TokenIdError` for a token, type or position id beyond its table, and
        :class:`SequenceLengthError` for too long a sequence without position ids. In a compiled
        graph, an operator checks the values when the graph runs.
        """
        known = self.vocab_size is not None and self.vocab_size <= limits.vocab_size
        vocab_size = self.vocab_size if known else limits.vocab_size
        columns = [self.input_ids, self.token_type_ids, self.position_ids]
        sequences = self.sequences
        if torch.compiler.is_compiling():
            columns[0] = _checked_in_graph(*columns, sequences.host_offsets, list(limits), known)
            sequences = sequences.in_graph(self.input_ids.shape[0])
            return _assemble(columns, sequences, vocab_size)
        if self._limits is not None and limits.cover(self._limits):
            return self
        self._check(limits, known)
        return _assemble(columns, sequences, vocab_size, limits)

    def _check(self, limits: Limits, known: bool) -> None:
        if self.position_ids is not None:
            self._check_range("position id", self.position_ids, limits.num_positions)
        if self.token_type_ids is not None and limits.num_segments:
            self._check_range("token type id", self.token_type_ids, limits.num_segments)
        if not known:
            self._check_range("token id", self.input_ids, limits.vocab_size)
        if self.position_ids is None and self.max_seqlen > limits.max_length:
            row = int(self.sequences.lengths.argmax())
            raise SequenceLengthError(
                f"row {row} has {self.max_seqlen} tokens, the model takes {limits.max_length}; "
                "truncate when tokenizing (max_length) or split the text",
                row=row,
            )


def _assemble(
    columns: list[Tensor | None],
    sequences: Sequences,
    vocab_size: int | None,
    limits: Limits | None = None,
) -> PackedBatch:
    """Return a batch of parts that are known to be valid, without validation."""
    batch = object.__new__(PackedBatch)
    for name, column in zip(_COLUMNS, columns, strict=True):
        object.__setattr__(batch, name, column)
    object.__setattr__(batch, "sequences", sequences)
    object.__setattr__(batch, "vocab_size", vocab_size)
    object.__setattr__(batch, "_limits", limits)
    return batch


@torch.library.custom_op("encoder_engine::checked_ids", mutates_args=())
def _checked_in_graph(
    input_ids: Tensor,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    host_offsets: Tensor,
    limits: list[int],
    known: bool,
) -> Tensor:
    """Check the batch within a compiled graph, and return its ids; exceptions as ``checked``."""
    columns = [input_ids, token_type_ids, position_ids]
    batch = _assemble(columns, assemble(host_offsets.int(), host_offsets), None)
    batch._check(Limits(*limits), known)
    return input_ids.clone()


@_checked_in_graph.register_fake
def _(input_ids: Tensor, *_: object) -> Tensor:
    return torch.empty_like(input_ids)


register_tree(
    PackedBatch,
    names=(*_COLUMNS, "sequences"),
    constants=lambda batch: batch.vocab_size,
    assemble=lambda leaves, vocab_size: _assemble(leaves[:3], leaves[3], vocab_size),
)


def pack(
    sequences: Sequence[Sequence[int]],
    *,
    token_type_ids: Sequence[Sequence[int]] | None = None,
    vocab_size: int | None = None,
    device: Device = "cpu",
) -> PackedBatch:
    """Concatenate lists of token ids to a batch.

    Raises :class:`BatchError` for a row that is not a sequence of integers, and for token types of
    another length than the ids; :class:`TokenIdError` for an id outside ``vocab_size``, if given.
    """
    columns = [_column("input_ids", sequences)]
    lengths = [len(row) for row in sequences]
    if token_type_ids is not None:
        if len(token_type_ids) != len(lengths):
            raise BatchError(f"{len(lengths)} rows of ids, {len(token_type_ids)} of token type ids")
        columns.append(_column("token_type_ids", token_type_ids))
        for row, (types, length) in enumerate(zip(token_type_ids, lengths, strict=True)):
            if len(types) != length:
                raise BatchError(
                    f"row {row} has {length} ids but {len(types)} token type ids", row=row
                )
    batch = PackedBatch(
        input_ids=columns[0],
        sequences=Sequences.from_lengths(lengths),
        token_type_ids=columns[1] if token_type_ids is not None else None,
        vocab_size=vocab_size,
    )
    return batch.to(device)


def _column(name: str, rows: Sequence[Sequence[int]]) -> Tensor:
    parts = []
    for row, values in enumerate(rows):
        if isinstance(values, (str, bytes)):
            raise BatchError(f"{name} row {row} is text, not token ids; tokenize it first", row=row)
        try:
            part = np.asarray(values)
        except ValueError as error:
            raise BatchError(
                f"{name} row {row} must be a flat sequence of integers: {error}", row=row
            ) from error
        if part.ndim != 1 or (part.size and not np.issubdtype(part.dtype, np.integer)):
            raise BatchError(
                f"{name} row {row} must be a flat sequence of integers, got {part.dtype} "
                f"{list(part.shape)}",
                row=row,
            )
        if part.size and part.dtype.kind == "u" and part.max() > np.iinfo(np.int64).max:
            raise BatchError(f"{name} row {row} holds {part.max()}, beyond 64 bits", row=row)
        parts.append(part.astype(np.int64, copy=False))
    return torch.from_numpy(np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64))
