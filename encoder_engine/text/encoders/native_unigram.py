"""Builds C++ encoders from the specifications of Unigram tokenizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.text.spec.unigram import (
    REGEXES,
    CharsmapStep,
    LowercaseStep,
    PrependStep,
    ReplaceStep,
    StripAccentsStep,
    StripStep,
    UnicodeFormStep,
)
from encoder_engine.text.vocabulary import NativePieces, NativeScores

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt

    from encoder_engine import _native
    from encoder_engine.text.encoders.protocols import EncoderParts
    from encoder_engine.text.spec.unigram import NormalizerStep, SentencePieceSpec, UnigramSpec

__all__ = [
    "build_sentencepiece",
    "build_step_normalizer",
    "build_unigram",
    "native_steps",
    "sentencepiece_model",
    "unigram_model",
]

# The order of csrc/text/unigram/words.h.
SCHEMES = {"always": 0, "first": 1, "never": 2}
UNKNOWN_PENALTY = 10.0
MARK = "\u2581"


def build_step_normalizer(
    native: ModuleType, steps: tuple[NormalizerStep, ...]
) -> _native.StepNormalizer:
    """Build the C++ normalizer that applies a tokenizer.json's normalizer steps."""
    normalizer: _native.StepNormalizer = native.StepNormalizer(native_steps(steps))
    return normalizer


def unigram_model(native: ModuleType, model: UnigramSpec) -> _native.UnigramModel:
    """Build the C++ Unigram model of a tokenizer.json: a trie of its pieces with their scores."""
    if isinstance(model.pieces, NativePieces):
        pieces = model.pieces.vocab.native
    else:
        numbers = np.arange(len(model.pieces), dtype=np.int32)
        pieces = native.Vocabulary(texts=model.pieces, ids=numbers)
    if isinstance(model.scores, NativeScores):
        scores = model.scores.array
    else:
        scores = np.asarray(model.scores, dtype=np.float64)
    built: _native.UnigramModel = native.UnigramModel(
        pieces=pieces,
        scores=scores,
        unknown_score=float(scores.min()) - UNKNOWN_PENALTY,
        narrow=False,
        mark=MARK,
    )
    return built


def build_unigram(
    native: ModuleType, model: UnigramSpec, parts: EncoderParts
) -> _native.BatchEncoder:
    """Build the C++ encoder of texts by a tokenizer.json's Unigram model."""
    metaspace = model.metaspace
    encoder: _native.BatchEncoder = native.unigram_encoder(
        model=unigram_model(native, model),
        unknown_id=model.unk_id,
        byte_ids=_byte_ids(model),
        steps=native_steps(model.normalizer),
        splitting=(
            model.whitespace_split,
            "" if metaspace is None else metaspace.replacement,
            0 if metaspace is None else SCHEMES[metaspace.prepend_scheme],
            metaspace is not None and metaspace.split,
        ),
        added=parts.added,
        single=parts.single,
        pair=parts.pair,
        trim=parts.trim,
    )
    return encoder


def sentencepiece_model(
    native: ModuleType, model: SentencePieceSpec, values: npt.NDArray[np.float32] | None = None
) -> _native.UnigramModel:
    """Build the C++ Unigram model of a SentencePiece model: the pieces that text can match.

    ``values``: the pieces' scores, if the caller has them already.
    """
    kinds = np.asarray(model.kinds)
    if values is None:
        values = sentencepiece_scores(model)
    least = values[kinds == "normal"].min(initial=np.finfo(np.float32).max)
    matched = np.flatnonzero((kinds == "normal") | (kinds == "user_defined"))
    built: _native.UnigramModel = native.UnigramModel(
        pieces=native.Vocabulary(
            texts=[model.pieces[index] for index in matched.tolist()],
            ids=matched.astype(np.int32),
        ),
        scores=values[matched].astype(np.float64),
        unknown_score=float(least - np.float32(UNKNOWN_PENALTY)),
        narrow=True,
        mark=MARK if model.escape_whitespaces else " ",
    )
    return built


def sentencepiece_scores(model: SentencePieceSpec) -> npt.NDArray[np.float32]:
    """Return each piece's score; user-defined ones get at least 0, above log-probabilities."""
    scores = np.array(model.scores, dtype=np.float32)
    for index, kind in enumerate(model.kinds):
        if kind == "user_defined":
            scores[index] = 0.1 * (len(model.pieces[index].encode()) - 1)
    return scores


def build_sentencepiece(
    native: ModuleType, model: SentencePieceSpec, parts: EncoderParts
) -> _native.BatchEncoder:
    """Build the C++ encoder of texts by a SentencePiece model without a tokenizer.json."""
    scores = sentencepiece_scores(model)
    encoder: _native.BatchEncoder = native.sentencepiece_encoder(
        model=sentencepiece_model(native, model, scores),
        symbols=model.symbols,
        charsmap=model.charsmap,
        unknown_id=model.unk_id,
        byte_ids=_byte_ids(model),
        add_dummy_prefix=model.add_dummy_prefix,
        remove_extra_whitespaces=model.remove_extra_whitespaces,
        escape_whitespaces=model.escape_whitespaces,
        whitespace_as_suffix=model.whitespace_as_suffix,
        scores=scores,
        single=parts.single,
        pair=parts.pair,
    )
    return encoder


def _byte_ids(model: UnigramSpec | SentencePieceSpec) -> list[int]:
    """Return the id of each byte's piece, -1 for a missing one; [] without byte fallback."""
    if not model.byte_fallback:
        return []
    return [model.vocab.get(f"<0x{byte:02X}>", -1) for byte in range(256)]


def native_steps(steps: tuple[NormalizerStep, ...]) -> list[tuple[Any, ...]]:
    """Return normalizer steps as the tuples that csrc/bindings/normalizer.cpp reads."""
    return [_step(step) for step in steps]


def _step(step: NormalizerStep) -> tuple[Any, ...]:
    """Return a normalizer step's name and arguments, as the extension reads them."""
    if isinstance(step, CharsmapStep):
        return "Precompiled", step.charsmap
    if isinstance(step, ReplaceStep) and step.regex:
        return "ReplaceRuns", *REGEXES[step.pattern], step.content
    if isinstance(step, ReplaceStep):
        return "Replace", step.pattern, step.content
    if isinstance(step, UnicodeFormStep):
        return (step.form,)
    if isinstance(step, StripAccentsStep):
        return ("StripAccents",)
    if isinstance(step, LowercaseStep):
        return ("Lowercase",)
    if isinstance(step, StripStep):
        return "Strip", step.left, step.right
    assert isinstance(step, PrependStep)
    return "Prepend", step.prefix
