"""The transformer of a sentence-transformers model computed here, in memory; all else is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.errors import MissingDependencyError, UnsupportedFeatureError
from encoder_engine.integrations import acceleration

if TYPE_CHECKING:
    from torch import nn

__all__ = ["accelerate", "restore"]

Model = TypeVar("Model", bound="nn.Module")


def accelerate(model: Model, *, pack: bool = False) -> Model:
    """Let this engine compute the transformer of a sentence-transformers model; return the model.

    ``model``: a ``SentenceTransformer``, ``CrossEncoder`` or ``SparseEncoder`` whose transformer
    :func:`encoder_engine.integrations.transformers.accelerate` takes; ``pack`` is as there.
    Tokenizing, prompts, pooling, normalising, ``truncate_dim``, training and saving stay
    sentence-transformers' own, and what is saved needs this engine no more than before. Raises
    :class:`UnsupportedFeatureError` for another model; :func:`restore` undoes.
    """
    acceleration.accelerate(_transformer_of(model), pack=pack)
    return model


def restore(model: Model) -> Model:
    """Give the transformer its own forward back, in place; weights are untouched, bit for bit."""
    acceleration.restore(_transformer_of(model))
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
        told = (
            "this takes a SentenceTransformer, CrossEncoder or SparseEncoder, got "
            f"{type(model).__name__}"
        )
        if type(model).__module__.partition(".")[0] == "transformers":
            told += ": use the functions of encoder_engine.integrations.transformers"
        raise UnsupportedFeatureError(told)
    found = model.transformers_model
    if found is None:
        raise UnsupportedFeatureError(f"this {type(model).__name__} has no transformer in it")
    return found
