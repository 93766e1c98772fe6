"""Converts a padded batch of transformers to a packed one.

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
    "PASSED_ON",
    "begins_with_padding",
    "global_rows",
    "kept",
    "refuse_holes",
    "warn_of_left_padding",
    "warn_of_original",
    "without_padding",
]


def kept(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return which positions of a padded batch hold tokens, bool [B, L].

    Raises :class:`UnsupportedFeatureError` for a mask of token pairs, and :class:`BatchError`
    for ids that are not [B, L] and a mask with other numbers than 0 and 1.
    """
    if input_ids.dim() != 2:
        raise BatchError(
            f"input_ids is {list(input_ids.shape)}, expected [B, L]; of one text pass "
            "input_ids[None]"
        )
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    if attention_mask.dim() in (3, 4):
        raise UnsupportedFeatureError(
            f"attention_mask is {list(attention_mask.shape)}: an accelerated model does not "
            "support masks of pairs of tokens; pass [B, L] with 1 for tokens and 0 for padding, "
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
            "0 for padding (additive masks and token weights are not supported)",
            row=row,
        )
    return keep_BL


def begins_with_padding(keep_BL: Tensor) -> bool:
    """Return whether the first column of any text is padding."""
    return keep_BL.shape[1] > 0 and not bool(keep_BL[:, 0].all())


# Libraries whose frames lie between a caller's line and the warning.
PASSED_ON = ("encoder_engine", "sentence_transformers", "torch", "transformers")


def warn_of_left_padding(mask: str) -> None:
    """Warn, at the caller's line, that the original forward computes a batch padded on the left.

    mask: the name of the argument that says so.
    """
    warn_of_original(
        f"{mask} has texts that begin with padding",
        "pad on the right (tokenizer.padding_side = 'right')",
    )


def warn_of_original(found: str, mend: str) -> None:
    """Warn, at the caller's line, that the original forward computes the batch.

    found: the reason.
    mend: what to do.
    """
    warn_caller(
        EncoderEngineWarning(
            f"{found}: the original forward computes such batches, correctly but at its own speed; "
            f"{mend}"
        ),
        passed_on=PASSED_ON,
    )


def without_padding(spec: EncoderSpec, named: dict[str, Any], keep_BL: Tensor) -> PackedBatch:
    """Return the tokens that ``keep_BL`` marks, packed; ``named``: the padded call's arguments."""
    ids_BL, positions = named["input_ids"], named.get("position_ids")
    if _has_holes(keep_BL):
        by_distance = spec.relative_biases or spec.distance_vectors or spec.convolution
        if by_distance or any(b.attention.window is not None for b in spec.blocks):
            refuse_holes(keep_BL, f"a {spec.model_type} counts", "pad at one end")
        positions = _positions(spec, ids_BL) if positions is None else positions
    if not _has_positions(spec):
        # transformers accepts these arguments and ignores them.
        positions = None
    types = named.get("token_type_ids") if spec.embedding.num_segments else None
    return unpad(
        ids_BL,
        keep_BL,
        token_type_ids=None if types is None else types.expand_as(ids_BL),
        position_ids=None if positions is None else positions.expand_as(ids_BL),
    )


def _has_holes(keep_BL: Tensor) -> bool:
    """Return whether padding precedes a token, so that the token's column is not its position."""
    return bool((keep_BL[:, 1:] & ~keep_BL[:, :-1]).any())


def refuse_holes(keep_BL: Tensor, counted: str, mend: str) -> None:
    """Raise :class:`UnsupportedFeatureError` for padding between the tokens of a text.

    ``counted``: who counts the padding as distance, for the message: "which {counted} as distance".
    ``mend``: the advice of the message.
    """
    if _has_holes(keep_BL):
        row = int((keep_BL[:, 1:] & ~keep_BL[:, :-1]).any(1).nonzero()[0])
        raise UnsupportedFeatureError(
            f"row {row} of attention_mask has padding between its tokens, which {counted} as "
            f"distance; {mend}"
        )


def _positions(spec: EncoderSpec, ids_BL: Tensor) -> Tensor:
    """Return transformers' position id of each column; padding before a token counts."""
    embedding = spec.embedding
    if embedding.positions_skip_padding:
        counted_BL = ids_BL != embedding.first_position - 1
        return counted_BL.cumsum(1) * counted_BL + embedding.first_position - 1
    return torch.arange(ids_BL.shape[1], device=ids_BL.device)


def _has_positions(spec: EncoderSpec) -> bool:
    """Return whether a model has absolute positions, by a table or rotary angles."""
    rotary = any(block.attention.rotary is not None for block in spec.blocks)
    return bool(spec.embedding.num_positions) or rotary


def global_rows(named: dict[str, Any], keep_BL: Tensor, batch: PackedBatch) -> SelectedRows | None:
    """Return the packed rows with global attention; None without ``global_attention_mask``."""
    global_BL = named.get("global_attention_mask")
    if global_BL is None:
        return None
    return SelectedRows(global_BL[keep_BL].nonzero().flatten(), batch.sequences)
