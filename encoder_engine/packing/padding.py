"""Converts padded tensors to packed ones, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from encoder_engine.errors import BatchError
from encoder_engine.packing.batch import PackedBatch
from encoder_engine.packing.sequences import Sequences

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pad", "unpad"]

Side = Literal["left", "right"]


def unpad(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    token_type_ids: Tensor | None = None,
    position_ids: Tensor | None = None,
    vocab_size: int | None = None,
) -> PackedBatch:
    """Convert a padded batch to a packed one.

    All tensors are [B, L]. Tokens where ``attention_mask`` is 0 are dropped, at any position.
    Positions of the remaining tokens count from 0 unless ``position_ids`` gives them. Raises
    :class:`BatchError` for other shapes, and for a mask that is not of 0 and 1.
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
    """Return packed ``values`` [T, ...] padded to [B, length, ...] with ``value``.

    ``length``: default: the longest sequence. Differentiable. Raises :class:`BatchError` where a
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
