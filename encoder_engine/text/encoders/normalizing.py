"""Builds text normalizers, and normalizes added tokens, which are searched for in texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.text.encoders.library import LibraryNormalizer
from encoder_engine.text.encoders.native_unigram import build_step_normalizer
from encoder_engine.text.encoders.native_wordpiece import normalizer_options
from encoder_engine.text.extension import extension
from encoder_engine.text.spec.bpe import BpeSpec
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec

if TYPE_CHECKING:
    from encoder_engine.text.encoders.protocols import TextNormalizer
    from encoder_engine.text.spec.tokenizer import ModelSpec, TokenizerSpec

__all__ = ["build_normalizer", "normalize_added"]


def build_normalizer(model: ModelSpec) -> TextNormalizer:
    """Build the normalizer of texts that a tokenizer's model uses."""
    if isinstance(model, LibrarySpec):
        return LibraryNormalizer(model)
    if isinstance(model, UnigramSpec | BpeSpec):
        return build_step_normalizer(extension(), model.normalizer)
    if isinstance(model, SentencePieceSpec):
        raise TypeError("a bare SentencePiece model has no added tokens")
    normalizer: TextNormalizer = extension().Normalizer(normalizer_options(model.normalizer))
    return normalizer


def normalize_added(spec: TokenizerSpec) -> dict[str, str]:
    """Return each added token's form to search texts for: normalized, if the token says so."""
    forms = {token.content: token.content for token in spec.added_tokens}
    if any(token.normalized for token in spec.added_tokens):
        normalizer = build_normalizer(spec.model)
        for token in spec.added_tokens:
            if token.normalized:
                forms[token.content] = normalizer.normalize(token.content)
    return forms
