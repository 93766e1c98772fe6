"""Builds what encodes a tokenizer's texts: an encoder in C++, or of Hugging Face tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from encoder_engine.text.encoders.library import LibraryEncoder
from encoder_engine.text.encoders.native_unigram import (
    SCHEMES,
    build_sentencepiece,
    build_unigram,
    native_steps,
)
from encoder_engine.text.encoders.native_wordpiece import build_wordpiece
from encoder_engine.text.encoders.normalizing import normalize_added
from encoder_engine.text.encoders.protocols import EncoderParts
from encoder_engine.text.extension import extension
from encoder_engine.text.spec.bpe import BpeSpec, WordPattern
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec

if TYPE_CHECKING:
    from encoder_engine.text.encoders.protocols import BatchEncoder
    from encoder_engine.text.spec.tokenizer import TemplatePiece, TokenizerSpec

__all__ = ["build_encoder"]

# The order of csrc/text/batch/encode_batch.h.
PIECE_KINDS = {"special": 0, "first": 1, "second": 2}
TRIM_NONE, TRIM_ALL, TRIM_PREFIXED = range(3)
PATTERNS = {name: number for number, name in enumerate(get_args(WordPattern))}


def build_encoder(spec: TokenizerSpec) -> BatchEncoder:
    """Build the encoder of texts that a tokenizer's specification describes."""
    if isinstance(spec.model, LibrarySpec):
        return LibraryEncoder(spec, spec.model)
    parts = EncoderParts(_added(spec), _template(spec.single), _template(spec.pair), _trim(spec))
    if isinstance(spec.model, SentencePieceSpec):
        return build_sentencepiece(extension(), spec.model, parts)
    if isinstance(spec.model, UnigramSpec):
        return build_unigram(extension(), spec.model, parts)
    if isinstance(spec.model, BpeSpec):
        return build_bpe(spec.model, parts)
    return build_wordpiece(spec.model, parts)


def _added(spec: TokenizerSpec) -> list[tuple[str, int, bool, bool, bool, bool]]:
    forms = normalize_added(spec)
    return [
        (
            forms[token.content],
            token.id,
            token.single_word,
            token.lstrip,
            token.rstrip,
            token.normalized,
        )
        for token in spec.added_tokens
    ]


def _trim(spec: TokenizerSpec) -> int:
    if spec.trim is None:
        return TRIM_NONE
    return TRIM_PREFIXED if spec.trim.add_prefix_space else TRIM_ALL


def _template(pieces: tuple[TemplatePiece, ...]) -> list[tuple[int, list[int]]]:
    return [(PIECE_KINDS[piece.kind], list(piece.ids)) for piece in pieces]


def build_bpe(model: BpeSpec, parts: EncoderParts) -> BatchEncoder:
    """Build the C++ encoder of texts by a BPE model."""
    splitting, metaspace = model.splitting, model.splitting.metaspace
    if parts.trim:
        model.model.count_blanks(model.tokens)
    encoder: BatchEncoder = extension().bpe_encoder(
        model=model.model,
        steps=native_steps(model.normalizer),
        splitting=(
            PATTERNS[splitting.pattern],
            splitting.add_prefix_space,
            metaspace is not None,
            SCHEMES["never" if metaspace is None else metaspace.prepend_scheme],
        ),
        added=parts.added,
        single=parts.single,
        pair=parts.pair,
        trim=parts.trim,
    )
    return encoder
