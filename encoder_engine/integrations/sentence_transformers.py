"""Computes the transformer of a sentence-transformers model by this engine, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.dependencies import require_torch

require_torch("encoder_engine.integrations.sentence_transformers")

from encoder_engine.errors import MissingDependencyError, UnsupportedFeatureError
from encoder_engine.integrations.acceleration import replaced_forward
from encoder_engine.integrations.tokenizers.replacing import restore_tokenizer, try_tokenizer

if TYPE_CHECKING:
    from torch import nn

__all__ = ["accelerate", "restore"]

Model = TypeVar("Model", bound="nn.Module")


def accelerate(model: Model, *, pack: bool = False) -> Model:
    """Compute a sentence-transformers model's transformer and tokens by this engine; return it.

    ``model``: a ``SentenceTransformer``, ``CrossEncoder`` or ``SparseEncoder`` whose transformer
    :func:`encoder_engine.integrations.transformers.accelerate` supports.
    ``pack``: as there.
    The tokenizer's calls are encoded by this engine where it can; a warning says where not.
    Prompts, pooling, normalising, ``truncate_dim``, training and saving stay
    sentence-transformers' own. :func:`restore` undoes. Raises :class:`UnsupportedFeatureError` for
    another model.
    """
    replaced_forward.accelerate(_transformer_of(model), pack=pack)
    try_tokenizer(getattr(model, "tokenizer", None))
    return model


def restore(model: Model) -> Model:
    """Restore the transformer's and the tokenizer's own methods; weights are untouched."""
    replaced_forward.restore(_transformer_of(model))
    restore_tokenizer(getattr(model, "tokenizer", None))
    return model


def _transformer_of(model: Any) -> Any:
    try:
        from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
    except ImportError:
        raise MissingDependencyError(
            "accelerating a sentence-transformers model",
            library="sentence-transformers",
            extra="sentence-transformers",
        ) from None
    if not isinstance(model, (CrossEncoder, SentenceTransformer, SparseEncoder)):
        message = (
            "this takes a SentenceTransformer, CrossEncoder or SparseEncoder, got "
            f"{type(model).__name__}"
        )
        if type(model).__module__.partition(".")[0] == "transformers":
            message += ": use the functions of encoder_engine.integrations.transformers"
        raise UnsupportedFeatureError(message)
    found = model.transformers_model
    if found is None:
        raise UnsupportedFeatureError(f"this {type(model).__name__} has no transformer in it")
    return found
