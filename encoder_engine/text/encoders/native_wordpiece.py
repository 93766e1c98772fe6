"""Builds C++ encoders from the specifications of WordPiece tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.text.extension import extension
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from encoder_engine import _native
    from encoder_engine.text.encoders.protocols import BatchEncoder, EncoderParts
    from encoder_engine.text.spec.tokenizer import BertNormalizerSpec, WordPieceSpec

__all__ = ["build_wordpiece", "normalizer_options", "wordpiece_model"]


def normalizer_options(spec: BertNormalizerSpec) -> _native.NormalizerOptions:
    """Return the switches of BERT's normalizer as an object of the C++ extension."""
    options: _native.NormalizerOptions = extension().NormalizerOptions(
        clean_text=spec.clean_text,
        handle_cjk=spec.handle_chinese_chars,
        strip_accents=spec.strips_accents,
        lowercase=spec.lowercase,
    )
    return options


def build_wordpiece(model: WordPieceSpec, parts: EncoderParts) -> BatchEncoder:
    """Build the C++ encoder of texts by a WordPiece model."""
    encoder: BatchEncoder = extension().BatchEncoder.wordpiece(
        model=wordpiece_model(model),
        normalizer=normalizer_options(model.normalizer),
        added=parts.added,
        single=parts.single,
        pair=parts.pair,
        trim=parts.trim,
    )
    return encoder


def wordpiece_model(model: WordPieceSpec) -> _native.WordPieceModel:
    """Build the C++ model of a WordPiece vocabulary."""
    if isinstance(model.vocab, NativeVocabulary):
        tokens = model.vocab.native
    else:
        numbers = np.fromiter(model.vocab.values(), np.int32, len(model.vocab))
        tokens = extension().Vocabulary(texts=model.vocab, ids=numbers)
    built: _native.WordPieceModel = extension().WordPieceModel(
        tokens=tokens,
        unknown_id=model.vocab[model.unk_token],
        prefix=model.continuing_subword_prefix,
        max_word_characters=model.max_input_chars_per_word,
    )
    return built
