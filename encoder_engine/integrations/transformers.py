"""Registers this engine's attention with transformers: packed, without padding.

After :func:`register`, ``AutoModel.from_pretrained(path, attn_implementation="encoder_engine")``
computes attention by this engine, in encoders with selectable attention. All other layers stay
transformers' own.

Dimensions: B texts, L longest, T tokens without padding, H heads, K heads of key, D head size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.dataclass import dataclass
from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.integrations.transformers")

import torch

from encoder_engine import ops
from encoder_engine.errors import MissingDependencyError, UnsupportedFeatureError
from encoder_engine.integrations.acceleration import replaced_forward
from encoder_engine.integrations.acceleration.padded_batch import begins_with_padding, refuse_holes
from encoder_engine.integrations.acceleration.patching import (
    __getattr__,  # noqa: F401, apply_encoder_engine_to_bert and its siblings
    apply_encoder_engine,
    revert_encoder_engine,
)
from encoder_engine.integrations.tokenizers.replacing import (
    accelerate_tokenizer,
    is_tokenizer,
    restore_tokenizer,
    try_tokenizer,
)
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = [
    "NAME",
    "accelerate",
    "apply_encoder_engine",
    "register",
    "restore",
    "revert_encoder_engine",
]

Accelerated = TypeVar("Accelerated")
NAME = "encoder_engine"
EAGER = "load the model with attn_implementation='eager'"


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Which positions of a padded batch are tokens, and the attention window; all layers share it.

    ``tokens_BL``: bool; None without padding.
    ``window``: a token attends to so many on each side; None: to all.
    ``seen``: transformers' own mask of token pairs, if a text begins with padding. Heads and
    poolers read the first column, padding or not, so padding attends too, as in transformers' SDPA.
    """

    tokens_BL: Tensor | None
    sequences: Sequences
    window: int | None
    seen: Tensor | None = None


def accelerate(model: Accelerated, *, pack: bool = False, full_logits: bool = False) -> Accelerated:
    """Compute a model, a tokenizer or a pipeline of transformers by this engine, in place.

    ``model``: a model, a fast tokenizer, or a pipeline with both. A pipeline's tokenizer that the
    engine does not encode stays as it is, with a warning.
    ``pack``: a compiled encoder computes the model.
    ``full_logits``: training computes the logits of all tokens.
    For models and both options see ``acceleration/replaced_forward.py``. :func:`restore` undoes.
    Raises :class:`UnsupportedFeatureError` for anything else.
    """
    if is_tokenizer(model):
        return accelerate_tokenizer(model)
    pipeline: Any = model
    replaced_forward.accelerate(
        pipeline.model if _is_pipeline(model) else pipeline, pack=pack, full_logits=full_logits
    )
    if _is_pipeline(model):
        try_tokenizer(pipeline.tokenizer)
    return model


def restore(model: Accelerated) -> Accelerated:
    """Restore transformers' own methods of a model, a tokenizer or a pipeline, in place."""
    if is_tokenizer(model):
        return restore_tokenizer(model)
    pipeline: Any = model
    if _is_pipeline(model):
        restore_tokenizer(pipeline.tokenizer)
    replaced_forward.restore(pipeline.model if _is_pipeline(model) else pipeline)
    return model


def _is_pipeline(value: object) -> bool:
    return any(kind.__module__ == "transformers.pipelines.base" for kind in type(value).__mro__)


def register() -> None:
    """Register attention and mask with transformers, under :data:`NAME`; idempotent.

    The mask is registered too, because transformers would silently attend to padding without it.
    Raises :class:`MissingDependencyError` where transformers 5 is not installed.
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError:
        raise MissingDependencyError(
            "attention for transformers' models", library="transformers", extra="transformers"
        ) from None
    AttentionMaskInterface.register(NAME, lay_out)
    AttentionInterface.register(NAME, attend)


def lay_out(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] | None = None,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    use_vmap: bool = False,
    **_: object,
) -> Layout:
    """Return the layout of a padding mask [B, L]; transformers calls this once per type of layer.

    Raises :class:`UnsupportedFeatureError` for a pattern other than all tokens or a window on both
    sides, such as a decoder's, and for padding between tokens in a window.
    """
    if q_length != kv_length or q_offset or kv_offset:
        raise UnsupportedFeatureError(
            f"{NAME} needs as many queries as keys, got {q_length} queries of {kv_length} keys; "
            f"{EAGER}"
        )
    window = None
    if mask_function is not None:
        # transformers sets use_vmap for functions of a model's own, which may differ by the text.
        window = _window_of(mask_function, 0, kv_length)
        for text in range(1, batch_size if use_vmap else 1):
            if _window_of(mask_function, text, kv_length) != window:
                raise _other_pattern()
    if attention_mask is None:
        lengths = [kv_length] * batch_size
        sequences = Sequences.from_lengths(lengths, device=torch.device(device))
        return Layout(tokens_BL=None, sequences=sequences, window=window)
    tokens_BL = attention_mask[:, :kv_length].bool()
    seen = None
    if begins_with_padding(tokens_BL):
        seen = _sdpa_mask(tokens_BL, mask_function)
    elif window is not None:
        refuse_holes(tokens_BL, "attention in a window counts", EAGER)
    lengths = tokens_BL.sum(1).tolist()
    sequences = Sequences.from_lengths(lengths, device=tokens_BL.device)
    padded = sequences.num_tokens < tokens_BL.numel()
    return Layout(
        tokens_BL=tokens_BL if padded else None, sequences=sequences, window=window, seen=seen
    )


def _sdpa_mask(tokens_BL: Tensor, mask_function: Callable[..., Tensor] | None) -> Tensor | None:
    from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

    batch_size, length = tokens_BL.shape
    seen: Tensor | None = sdpa_mask(
        batch_size=batch_size,
        q_length=length,
        kv_length=length,
        mask_function=mask_function or bidirectional_mask_function,
        attention_mask=tokens_BL,
        device=tokens_BL.device,
        allow_is_causal_skip=False,
    )
    return seen


def _window_of(mask_function: Callable[..., Tensor], text: int, length: int) -> int | None:
    """Return the window of a text's mask function, by asking it which keys each query sees.

    None: all keys.
    """
    places = torch.arange(length)
    none = torch.zeros((), dtype=torch.int64)
    seen = mask_function(none + text, none, places[:, None], places[None, :])
    seen = seen.expand(length, length).cpu()
    if bool(seen.all()):
        return None
    window = int(seen[0].sum()) - 1
    if not torch.equal(seen, (places - places[:, None]).abs() <= window):
        raise _other_pattern()
    return window


def _other_pattern() -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{NAME} computes attention to all tokens, or to a window on both sides; this model has "
        f"another pattern; {EAGER}"
    )


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    dropout: float = 0.0,
    **more: Any,
) -> tuple[Tensor, None]:
    """Compute attention: query [B, H, L, D], key and value [B, K, L, D] -> [B, L, H, D].

    Rows of padding are zero. A batch in which a text begins with padding is computed by
    transformers' SDPA, rows of padding too. Raises :class:`UnsupportedFeatureError` for
    ``output_attentions`` and other arguments that are not supported.
    """
    if not isinstance(attention_mask, Layout):
        raise UnsupportedFeatureError(
            f"{NAME} takes a padding mask [B, L], this model passed {_described(attention_mask)}; "
            f"{EAGER}"
        )
    _refuse_more(module, more)
    layout = attention_mask
    if layout.seen is not None:
        return _attend_by_sdpa(module, (query, key, value), layout.seen, scaling, dropout)
    rows = [_rows(x, layout) for x in (query, key, value)]
    mixed_THD = ops.attention(
        rows[0],
        rows[1],
        rows[2],
        layout.sequences,
        scale=scaling,
        dropout=dropout,
        window=layout.window,
    )
    batch_size, num_heads, length, head_dim = query.shape
    if layout.tokens_BL is None:
        return mixed_THD.view(batch_size, length, num_heads, head_dim), None
    padded = mixed_THD.new_zeros(batch_size, length, num_heads, head_dim)
    padded[layout.tokens_BL] = mixed_THD
    return padded, None


def _attend_by_sdpa(
    module: torch.nn.Module,
    heads: tuple[Tensor, Tensor, Tensor],
    seen: Tensor,
    scaling: float | None,
    dropout: float,
) -> tuple[Tensor, None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    mixed, _ = sdpa_attention_forward(
        module, *heads, attention_mask=seen, dropout=dropout, scaling=scaling
    )
    return mixed, None


def _rows(heads_BHLD: Tensor, layout: Layout) -> Tensor:
    rows_BLHD = heads_BHLD.transpose(1, 2)
    if layout.tokens_BL is not None:
        return rows_BLHD[layout.tokens_BL]
    return rows_BLHD.flatten(0, 1)


def _refuse_more(module: torch.nn.Module, more: dict[str, Any]) -> None:
    from transformers.utils import output_capturing

    collected: dict[str, Any] = output_capturing._active_collector.get() or {}  # type: ignore[no-untyped-call]
    if more.get("output_attentions") or "attentions" in collected:
        raise UnsupportedFeatureError(f"{NAME} returns no attention weights; {EAGER}")
    if getattr(module, "is_causal", False) or more.get("is_causal"):
        raise UnsupportedFeatureError(f"{NAME} attends in both directions, not causally; {EAGER}")
    for name in ("position_bias", "softcap", "s_aux", "head_mask"):
        if more.get(name) is not None:
            raise UnsupportedFeatureError(f"{NAME} adds no {name} to the scores here; {EAGER}")


def _described(mask: object) -> str:
    return str(list(mask.shape)) if isinstance(mask, torch.Tensor) else type(mask).__name__
