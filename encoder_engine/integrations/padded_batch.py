"""A padded batch as transformers takes it, turned into a packed one.

Dimensions: B texts, L longest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from encoder_engine.errors import BatchError, EncoderEngineWarning, UnsupportedFeatureError
from encoder_engine.packing import PackedBatch, SelectedRows, unpad
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from encoder_engine.models import EncoderSpec

__all__ = [
    "begins_with_padding",
    "global_rows",
    "kept",
    "refuse_holes",
    "warn_of_left_padding",
    "without_padding",
]


def kept(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Say which columns hold tokens, bool [B, L].

    Raises :class:`UnsupportedFeatureError` for a mask that says which token sees which, and
    :class:`BatchError` for one that holds other numbers than 0 and 1.
    """
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    if attention_mask.dim() in (3, 4):
        raise UnsupportedFeatureError(
            f"attention_mask is {list(attention_mask.shape)}: which token sees which is not "
            "computed by an accelerated model; pass [B, L] with 1 for tokens and 0 for padding, "
            "or call restore(model)"
        )
    if attention_mask.shape != input_ids.shape:
        raise BatchError(
            f"attention_mask is {list(attention_mask.shape)}, input_ids is {list(input_ids.shape)}"
        )
    if attention_mask.dtype == torch.bool:
        return attention_mask
    keep_BL = attention_mask != 0
    if bool((attention_mask != keep_BL).any()):
        row = int((attention_mask != keep_BL).any(1).nonzero()[0])
        raise BatchError(
            f"row {row} of attention_mask holds other numbers than 0 and 1; pass 1 for tokens and "
            "0 for padding (numbers that are added to scores, or weigh tokens, are not computed "
            "here)",
            row=row,
        )
    return keep_BL


def begins_with_padding(keep_BL: Tensor) -> bool:
    """Say whether the first column of a text is padding."""
    return keep_BL.shape[1] > 0 and not bool(keep_BL[:, 0].all())


# Between a caller's line and this: modules called by modules, decorated here and there.
PASSED_ON = ("encoder_engine", "sentence_transformers", "torch", "transformers")


def warn_of_left_padding(mask: str) -> None:
    """Warn that a batch is computed at the original's speed, at the line that called the model."""
    warn_caller(
        EncoderEngineWarning(
            f"{mask} has texts that begin with padding: such batches are right, but computed by "
            "the original forward at its speed; pad on the right "
            "(tokenizer.padding_side = 'right')"
        ),
        passed_on=PASSED_ON,
    )


def without_padding(spec: EncoderSpec, named: dict[str, Any], keep_BL: Tensor) -> PackedBatch:
    """Take the padding out of a batch."""
    ids_BL, positions = named["input_ids"], named.get("position_ids")
    if _has_holes(keep_BL):
        by_distance = spec.relative_bias or spec.distance_vectors or spec.convolution
        if by_distance or any(b.attention.window is not None for b in spec.blocks):
            refuse_holes(keep_BL, f"a {spec.model_type} counts", "pad at one end")
        positions = _positions(spec, ids_BL) if positions is None else positions
    if not _has_positions(spec):
        # transformers takes them there, and does not read them.
        positions = None
    types = named.get("token_type_ids") if spec.embedding.num_segments else None
    return unpad(
        *(ids_BL, keep_BL),
        token_type_ids=None if types is None else types.expand_as(ids_BL),
        position_ids=None if positions is None else positions.expand_as(ids_BL),
    )


def _has_holes(keep_BL: Tensor) -> bool:
    """Say whether a token follows padding: then its column is not its place in the text."""
    return bool((keep_BL[:, 1:] & ~keep_BL[:, :-1]).any())


def refuse_holes(keep_BL: Tensor, counted: str, mend: str) -> None:
    """Raise :class:`UnsupportedFeatureError` where padding is between a text's tokens.

    Of texts that begin with a token. ``counted`` says who counts it as distance.
    """
    if _has_holes(keep_BL):
        row = int((keep_BL[:, 1:] & ~keep_BL[:, :-1]).any(1).nonzero()[0])
        raise UnsupportedFeatureError(
            f"row {row} of attention_mask has padding between its tokens, which {counted} as "
            f"distance; {mend}"
        )


def _positions(spec: EncoderSpec, ids_BL: Tensor) -> Tensor:
    """Give each column the number transformers does, which counts padding ahead of a token."""
    embedding = spec.embedding
    if embedding.positions_skip_padding:
        counted_BL = ids_BL != embedding.first_position - 1
        return counted_BL.cumsum(1) * counted_BL + embedding.first_position - 1
    return torch.arange(ids_BL.shape[1], device=ids_BL.device)


def _has_positions(spec: EncoderSpec) -> bool:
    """Say whether a position has a number, by a table or an angle, and not only a distance."""
    rotary = any(block.attention.rotary is not None for block in spec.blocks)
    return bool(spec.embedding.num_positions) or rotary


def global_rows(named: dict[str, Any], keep_BL: Tensor, batch: PackedBatch) -> SelectedRows | None:
    """Say which rows of the packed batch see all of their text, or None where none is named."""
    global_BL = named.get("global_attention_mask")
    if global_BL is None:
        return None
    return SelectedRows(global_BL[keep_BL].nonzero().flatten(), batch.sequences)
