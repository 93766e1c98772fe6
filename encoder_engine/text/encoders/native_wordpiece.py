"""Hands a specification to the C++ encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from encoder_engine.errors import MissingExtensionError
from encoder_engine.text.encoders.library import LibraryEncoder, LibraryNormalizer
from encoder_engine.text.encoders.native_unigram import (
    EncoderParts,
    build_sentencepiece,
    build_unigram,
    build_unigram_normalizer,
)
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from types import ModuleType

    from encoder_engine import _native
    from encoder_engine.text.encoding import BoolArray, IntArray
    from encoder_engine.text.spec.tokenizer import (
        BertNormalizerSpec,
        ModelSpec,
        TemplatePiece,
        TokenizerSpec,
        WordPieceSpec,
    )

__all__ = ["BatchEncoder", "build_encoder", "normalize_added", "normalizer_options"]

# Ids, row starts, tokens of the first texts, offsets, word ids, the text of each row, what was cut.
BatchArrays: TypeAlias = (
    "tuple[IntArray, IntArray, IntArray | None, IntArray | None, IntArray | None, IntArray | None, "
    "BoolArray]"
)
# The order of csrc/text/batch/encode_batch.h.
PIECE_KINDS = {"special": 0, "first": 1, "second": 2}
TRIM_NONE, TRIM_ALL, TRIM_PREFIXED = range(3)


class TextNormalizer(Protocol):
    """Brings text into the form in which the model sees it."""

    def normalize(self, text: str) -> str:
        """Normalize a text by itself."""


class BatchEncoder(Protocol):
    """What a :class:`Tokenizer` asks of an encoder: the methods of ``_native.BatchEncoder``."""

    def encode_batch(
        self,
        texts: object,
        pairs: object | None,
        add_special_tokens: bool,
        strategy: int,
        max_length: int,
        stride: int,
        overflow: bool,
        left: bool,
        with_spans: bool,
        words: bool,
        num_threads: int,
        /,
    ) -> BatchArrays:
        """Encode a batch."""

    def encode(self, text: str, add_special_tokens: bool, /) -> IntArray:
        """Encode one text."""


def extension() -> ModuleType:
    """Import the C++ extension; :class:`MissingExtensionError` says how to build it."""
    try:
        from encoder_engine import _native
    except ImportError as error:
        raise MissingExtensionError(
            "tokenizing needs the native extension, which is not built for this Python "
            f"({error}); build it with: pip install . (or, in a checkout, "
            "python setup.py build_ext --inplace)"
        ) from error
    return _native


def normalizer_options(spec: BertNormalizerSpec) -> _native.NormalizerOptions:
    """Give the normalizer's switches as the extension takes them."""
    options: _native.NormalizerOptions = extension().NormalizerOptions(
        clean_text=spec.clean_text,
        handle_cjk=spec.handle_chinese_chars,
        strip_accents=spec.strips_accents,
        lowercase=spec.lowercase,
    )
    return options


def build_normalizer(model: ModelSpec) -> TextNormalizer:
    """Build what brings text into the form in which the model sees it."""
    if isinstance(model, LibrarySpec):
        return LibraryNormalizer(model)
    if isinstance(model, UnigramSpec):
        return build_unigram_normalizer(extension(), model)
    if isinstance(model, SentencePieceSpec):
        raise TypeError("a bare SentencePiece model has no added tokens")
    normalizer: TextNormalizer = extension().Normalizer(normalizer_options(model.normalizer))
    return normalizer


def normalize_added(spec: TokenizerSpec) -> dict[str, str]:
    """Give for each added token the text to match: its normal form where it says so."""
    forms = {token.content: token.content for token in spec.added_tokens}
    if any(token.normalized for token in spec.added_tokens):
        normalizer = build_normalizer(spec.model)
        for token in spec.added_tokens:
            if token.normalized:
                forms[token.content] = normalizer.normalize(token.content)
    return forms


def build_encoder(spec: TokenizerSpec) -> BatchEncoder:
    """Build the encoder of a specification."""
    if isinstance(spec.model, LibrarySpec):
        return LibraryEncoder(spec, spec.model)
    if isinstance(spec.model, UnigramSpec | SentencePieceSpec):
        single, pair = _template(spec.single), _template(spec.pair)
        parts = EncoderParts(_added(spec), single, pair, _trim(spec))
        if isinstance(spec.model, SentencePieceSpec):
            return build_sentencepiece(extension(), spec.model, parts)
        return build_unigram(extension(), spec.model, parts)
    return _build_wordpiece(spec, spec.model)


def _build_wordpiece(spec: TokenizerSpec, model: WordPieceSpec) -> BatchEncoder:
    encoder: BatchEncoder = extension().BatchEncoder.wordpiece(
        model=wordpiece_model(model),
        normalizer=normalizer_options(model.normalizer),
        added=_added(spec),
        single=_template(spec.single),
        pair=_template(spec.pair),
        trim=_trim(spec),
    )
    return encoder


def wordpiece_model(model: WordPieceSpec) -> _native.WordPieceModel:
    """Build the model of a vocabulary."""
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
