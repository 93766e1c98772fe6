"""Has this engine compute a sentence-transformers model's Transformer modules, in memory."""

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
    """Compute a sentence-transformers model's Transformer and tokenizer by this engine.

    ``model``: a ``SentenceTransformer``, ``CrossEncoder`` or ``SparseEncoder`` whose transformer
    :func:`encoder_engine.integrations.transformers.accelerate` supports; with a Router, the
    Transformers of both routes.
    ``pack``: see that function. Returns the model. This engine encodes the tokenizer's calls if it
    supports the tokenizer, else there is a warning. Prompts, pooling, normalising,
    ``truncate_dim``, training and saving stay sentence-transformers' own. :func:`restore` undoes.
    Raises :class:`UnsupportedFeatureError` for another model.
    """
    transformers, tokenizers = _parts_of(model)
    for place, transformer in enumerate(transformers):
        try:
            replaced_forward.accelerate(transformer, pack=pack)
        except UnsupportedFeatureError:
            for done in transformers[:place]:
                replaced_forward.restore(done)
            raise
    for tokenizer in tokenizers:
        try_tokenizer(tokenizer)
    return model


def restore(model: Model) -> Model:
    """Undo :func:`accelerate`: give the model's transformers and tokenizers their own methods back.

    This is done in place. The weights are not changed: what was trained since is kept.
    """
    transformers, tokenizers = _parts_of(model)
    for transformer in transformers:
        replaced_forward.restore(transformer)
    for tokenizer in tokenizers:
        restore_tokenizer(tokenizer)
    return model


def _parts_of(model: Any) -> tuple[list[Any], list[Any]]:
    """Return the transformers models within a sentence-transformers model, and their tokenizers."""
    try:
        from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
        from sentence_transformers.base.modules import Transformer
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
    modules = [module for module in model.modules() if isinstance(module, Transformer)]
    found = [module.model for module in modules] or [model.transformers_model]
    if found == [None]:
        raise UnsupportedFeatureError(f"this {type(model).__name__} has no transformer in it")
    tokenizers = [module.tokenizer for module in modules] or [getattr(model, "tokenizer", None)]
    return [*dict.fromkeys(found)], [*{id(one): one for one in tokenizers}.values()]
