"""Packed batches: the form in which the engine holds text; the only code that knows padding.

B sequences of lengths ``n_0 .. n_{B-1}`` lie end to end in tensors of ``T = sum(n_i)`` rows;
``cu_seqlens`` ``[0, n_0, n_0 + n_1, .., T]`` says where each begins, as in FlashAttention's
variable-length interface (Dao 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from encoder_engine.errors import BatchError, TokenIdError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["PackedBatch", "Sequences", "pack", "pad", "unpad"]

Side = Literal["left", "right"]
Device = str | torch.device
_ID_DTYPES = (torch.int32, torch.int64)


class LengthGroup(NamedTuple):
    """The sequences of one length.

    ``members``: their indices, int64 [n]. ``rows``: selects their n * length rows of a packed
    tensor, sequence by sequence; a slice where they lie side by side.
    """

    length: int
    members: Tensor
    rows: Tensor | slice


@dataclass(frozen=True, eq=False)
class Sequences:
    """Where each sequence of a packed tensor begins and ends.

    ``cu_seqlens``: int32 [B + 1] on the device of the tensors it describes. The lengths are also
    kept on the host, so that nothing later has to wait for the device; building one from a CUDA
    tensor copies B + 1 integers once.

    Raises :class:`BatchError` where ``cu_seqlens`` is not int32, not 1-D, does not start at 0, or
    decreases.
    """

    cu_seqlens: Tensor

    def __post_init__(self) -> None:
        cu = self.cu_seqlens
        if not isinstance(cu, Tensor) or cu.dtype != torch.int32 or cu.dim() != 1 or len(cu) == 0:
            found = f"{cu.dtype} {list(cu.shape)}" if isinstance(cu, Tensor) else type(cu).__name__
            raise BatchError(f"cu_seqlens must be a torch.int32 tensor [B + 1], got {found}")
        offsets = self.offsets
        if offsets[0] != 0:
            raise BatchError(f"cu_seqlens must start at 0, got {offsets[0]}")
        falls = np.flatnonzero(np.diff(offsets) < 0)
        if len(falls):
            row = int(falls[0])
            raise BatchError(
                f"cu_seqlens must not decrease, but sequence {row} would run from {offsets[row]} "
                f"to {offsets[row + 1]}",
                row=row,
            )

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], *, device: Device = "cpu") -> Sequences:
        """Lay sequences of the given lengths end to end."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(np.asarray(lengths, dtype=np.int64), out=offsets[1:])
        if len(offsets) and offsets[-1] > np.iinfo(np.int32).max:
            raise BatchError(f"{offsets[-1]} tokens do not fit one batch; the limit is 2^31 - 1")
        return cls(torch.from_numpy(offsets.astype(np.int32)).to(device))

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """``cu_seqlens`` on the host, int64 [B + 1]."""
        return self.cu_seqlens.detach().cpu().numpy().astype(np.int64)

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each sequence, on the host, int64 [B]."""
        return np.diff(self.offsets)

    @cached_property
    def max_seqlen(self) -> int:
        """Length of the longest sequence; 0 for an empty batch."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def num_tokens(self) -> int:
        """Rows of the packed tensors, T."""
        return int(self.offsets[-1])

    @property
    def device(self) -> torch.device:
        """Where ``cu_seqlens`` lies."""
        return self.cu_seqlens.device

    @cached_property
    def sequence_ids(self) -> Tensor:
        """Which sequence each row belongs to, int64 [T]."""
        ids = np.repeat(np.arange(len(self)), self.lengths)
        return _kept(ids, self.device)

    @cached_property
    def positions(self) -> Tensor:
        """Each row's place within its sequence, from 0, int64 [T]."""
        places = np.arange(self.num_tokens) - np.repeat(self.offsets[:-1], self.lengths)
        return _kept(places, self.device)

    @cached_property
    def length_groups(self) -> tuple[LengthGroup, ...]:
        """Sequences of equal length together, by first appearance; empty ones are in no group."""
        groups: list[LengthGroup] = []
        lengths, firsts = np.unique(self.lengths, return_index=True)
        for length in lengths[np.argsort(firsts)]:
            if length == 0:
                continue
            members = np.flatnonzero(self.lengths == length)
            starts = self.offsets[members]
            rows: Tensor | slice = slice(int(starts[0]), int(starts[-1] + length))
            if members[-1] - members[0] + 1 != len(members):
                scattered = (starts[:, None] + np.arange(length)).reshape(-1)
                rows = _kept(scattered, self.device)
            ids = _kept(members, self.device)
            groups.append(LengthGroup(length=int(length), members=ids, rows=rows))
        return tuple(groups)

    @cached_property
    def grouped_order(self) -> Tensor | None:
        """Where each row lies once :attr:`length_groups` are joined, int64 [T]; None: unmoved."""
        places = np.arange(self.num_tokens)
        groups = [places[_on_host(group.rows)] for group in self.length_groups]
        joined = np.concatenate(groups) if groups else places
        if np.array_equal(joined, places):
            return None
        order = np.empty_like(joined)
        order[joined] = places
        return _kept(order, self.device)

    def tiles(self, block: int) -> Tensor:
        """Cut every sequence into blocks of rows: int32 [n, 2], (sequence, block), longest first.

        Made once per block size and kept, so that all layers share it.
        """
        found = self._tiles.get(block)
        if found is None:
            counts = -(-self.lengths // block)
            order = np.argsort(-self.lengths, kind="stable")
            owners = np.repeat(order, counts[order])
            firsts = np.repeat(np.cumsum(counts[order]) - counts[order], counts[order])
            blocks = np.arange(len(owners)) - firsts
            cut = np.stack([owners, blocks], axis=1).astype(np.int32)
            found = self._tiles[block] = torch.from_numpy(cut).to(self.device)
        return found

    @cached_property
    def _tiles(self) -> dict[int, Tensor]:
        return {}

    def to(self, device: Device) -> Sequences:
        """Return the same layout on another device."""
        if torch.device(device) == self.device:
            return self
        moved = Sequences.__new__(Sequences)
        object.__setattr__(moved, "cu_seqlens", _moved(self.cu_seqlens, device))
        moved.__dict__["offsets"] = self.offsets
        return moved


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedBatch:
    """B token sequences, end to end, validated when made.

    ``input_ids`` int32 or int64 [T]; ``sequences`` says where each begins; ``token_type_ids`` and
    ``position_ids`` are None or like ``input_ids`` (None: all zero, and counting from 0 in each
    sequence). Where ``vocab_size`` is given, ids are checked against it once, here.

    Raises :class:`BatchError` for tensors that do not fit each other and :class:`TokenIdError` for
    an id outside the vocabulary; both carry the offending row.
    """

    input_ids: Tensor
    sequences: Sequences
    token_type_ids: Tensor | None = None
    position_ids: Tensor | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sequences, Sequences):
            raise BatchError(
                f"sequences must be a Sequences, got {type(self.sequences).__name__}; "
                "wrap cu_seqlens as Sequences(cu_seqlens)"
            )
        for name in ("input_ids", "token_type_ids", "position_ids"):
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
            "the tokenizer and the model do not belong together",
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
        """Wrap numpy arrays without copying (on the CPU), check them, and move them."""
        batch = cls(
            input_ids=torch.from_numpy(input_ids),
            sequences=Sequences(torch.from_numpy(cu_seqlens)),
            token_type_ids=None if token_type_ids is None else torch.from_numpy(token_type_ids),
            vocab_size=vocab_size,
        )
        return batch.to(device)

    @property
    def cu_seqlens(self) -> Tensor:
        """Where each sequence begins, and T last: int32 [B + 1]."""
        return self.sequences.cu_seqlens

    @property
    def max_seqlen(self) -> int:
        """Length of the longest sequence."""
        return self.sequences.max_seqlen

    @property
    def num_tokens(self) -> int:
        """Rows of the packed tensors, T."""
        return self.sequences.num_tokens

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.input_ids.device

    def __len__(self) -> int:
        return len(self.sequences)

    def to(self, device: Device) -> PackedBatch:
        """Return the same batch on another device; nothing is checked again."""
        if torch.device(device) == self.device:
            return self
        moved = PackedBatch.__new__(PackedBatch)
        moved.__dict__.update(self.__dict__, sequences=self.sequences.to(device))
        for name in ("input_ids", "token_type_ids", "position_ids"):
            column = getattr(self, name)
            if column is not None:
                moved.__dict__[name] = _moved(column, device)
        return moved

    def checked(self, *, vocab_size: int, num_segments: int, num_positions: int) -> PackedBatch:
        """Return this batch known to fit a model's tables, checking what is not yet."""
        if self.position_ids is not None:
            self._check_range("position id", self.position_ids, num_positions)
        if self.token_type_ids is not None and num_segments:
            self._check_range("token type id", self.token_type_ids, num_segments)
        if self.vocab_size is not None and self.vocab_size <= vocab_size:
            return self
        self._check_range("token id", self.input_ids, vocab_size)
        checked = PackedBatch.__new__(PackedBatch)
        checked.__dict__.update(self.__dict__, vocab_size=vocab_size)
        return checked


def _kept(values: npt.NDArray[np.integer], device: Device) -> Tensor:
    """Make a tensor to keep with a batch: one made under inference mode could never train."""
    with torch.inference_mode(False):
        return torch.from_numpy(values).to(device)


def _moved(tensor: Tensor, device: Device) -> Tensor:
    # Only a copy to a device may go on behind us: from one, the host would read too early.
    return tensor.to(device, non_blocking=torch.device(device).type != "cpu")


def _on_host(rows: Tensor | slice) -> npt.NDArray[np.int64] | slice:
    return rows if isinstance(rows, slice) else rows.cpu().numpy()


def pack(
    sequences: Sequence[Sequence[int]],
    *,
    token_type_ids: Sequence[Sequence[int]] | None = None,
    vocab_size: int | None = None,
    device: Device = "cpu",
) -> PackedBatch:
    """Lay lists of token ids end to end.

    Raises :class:`BatchError` where a row is not a sequence of integers or the token types of a row
    have another length than its ids.
    """
    columns = [_flatten("input_ids", sequences)]
    lengths = [len(row) for row in sequences]
    if token_type_ids is not None:
        if len(token_type_ids) != len(lengths):
            raise BatchError(f"{len(lengths)} rows of ids, {len(token_type_ids)} of token type ids")
        for row, (types, length) in enumerate(zip(token_type_ids, lengths, strict=True)):
            if len(types) != length:
                raise BatchError(
                    f"row {row} has {length} ids but {len(types)} token type ids", row=row
                )
        columns.append(_flatten("token_type_ids", token_type_ids))
    batch = PackedBatch(
        input_ids=columns[0],
        sequences=Sequences.from_lengths(lengths),
        token_type_ids=columns[1] if token_type_ids is not None else None,
        vocab_size=vocab_size,
    )
    return batch.to(device)


def _flatten(name: str, rows: Sequence[Sequence[int]]) -> Tensor:
    parts = []
    for row, values in enumerate(rows):
        if isinstance(values, (str, bytes)):
            raise BatchError(f"{name} row {row} is text, not token ids; tokenize it first", row=row)
        part = np.asarray(values)
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


def unpad(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    token_type_ids: Tensor | None = None,
    position_ids: Tensor | None = None,
    vocab_size: int | None = None,
) -> PackedBatch:
    """Take the padding out of a padded batch.

    All arguments are [B, L]; rows where ``attention_mask`` is 0 are dropped, wherever they lie. The
    positions of what stays count from 0 unless ``position_ids`` gives them.
    """
    if input_ids.dim() != 2:
        raise BatchError(f"input_ids must be [B, L], got {list(input_ids.shape)}")
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    for name, other in (
        ("attention_mask", mask),
        ("token_type_ids", token_type_ids),
        ("position_ids", position_ids),
    ):
        if other is not None and other.shape != input_ids.shape:
            raise BatchError(f"{name} is {list(other.shape)}, input_ids is {list(input_ids.shape)}")
    if mask.dtype.is_floating_point or bool(((mask != 0) & (mask != 1)).any()):
        raise BatchError(
            "attention_mask must hold 0 and 1 (or be bool); an additive mask cannot be unpadded"
        )
    keep = mask.bool()
    return PackedBatch(
        input_ids=input_ids[keep],
        sequences=Sequences.from_lengths(keep.sum(1).tolist(), device=input_ids.device),
        token_type_ids=None if token_type_ids is None else token_type_ids[keep],
        position_ids=None if position_ids is None else position_ids[keep],
        vocab_size=vocab_size,
    )


def pad(
    values: Tensor,
    sequences: Sequences,
    *,
    length: int | None = None,
    side: Side = "right",
    value: float = 0.0,
) -> Tensor:
    """Spread packed ``values`` [T, ...] over a tensor [B, length, ...] filled with ``value``.

    ``length`` defaults to the longest sequence. Differentiable. Raises :class:`BatchError` where a
    sequence is longer than ``length``.
    """
    if len(values) != sequences.num_tokens:
        raise BatchError(
            f"values has {len(values)} rows, the sequences hold {sequences.num_tokens} tokens"
        )
    if side not in ("left", "right"):
        raise BatchError(f"side must be 'left' or 'right', got {side!r}")
    length = sequences.max_seqlen if length is None else length
    if sequences.max_seqlen > length:
        row = int(sequences.lengths.argmax())
        raise BatchError(
            f"row {row} has {sequences.max_seqlen} tokens, more than length={length}", row=row
        )
    padded = values.new_full((len(sequences), length, *values.shape[1:]), value)
    columns = sequences.positions
    if side == "left":
        shift = torch.from_numpy(length - sequences.lengths).to(values.device)
        columns = columns + shift[sequences.sequence_ids]
    return padded.index_put((sequences.sequence_ids, columns), values)
