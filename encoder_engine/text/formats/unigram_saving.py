"""Writes the members of a tokenizer.json that belong to a Unigram model."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from encoder_engine.text.spec.unigram import (
    ByteFallbackStep,
    CharsmapStep,
    DecoderSteps,
    FuseStep,
    LowercaseStep,
    MetaspaceSpec,
    PrependStep,
    ReplaceStep,
    StripAccentsStep,
    StripStep,
    StripTokensStep,
    UnicodeFormStep,
)

if TYPE_CHECKING:
    from encoder_engine.text.spec.tokenizer import TokenizerSpec
    from encoder_engine.text.spec.unigram import DecoderStep, NormalizerStep, UnigramSpec

__all__ = ["decoder_member", "normalizer_member", "unigram_members"]


def unigram_members(spec: TokenizerSpec, model: UnigramSpec) -> dict[str, Any]:
    """Return a Unigram model, its steps and its decoder as members of a tokenizer.json."""
    splitters: list[dict[str, Any]] = []
    if model.whitespace_split:
        splitters.append({"type": "WhitespaceSplit"})
    if model.metaspace is not None:
        splitters.append(_metaspace(model.metaspace))
    steps = spec.decoder.steps if isinstance(spec.decoder, DecoderSteps) else ()
    return {
        "normalizer": normalizer_member(model.normalizer),
        "pre_tokenizer": _join(splitters, "pretokenizers"),
        "decoder": decoder_member(steps),
        "model": {
            "type": "Unigram",
            "unk_id": model.unk_id,
            "vocab": [list(item) for item in zip(model.pieces, model.scores, strict=True)],
            "byte_fallback": model.byte_fallback,
        },
    }


def normalizer_member(steps: tuple[NormalizerStep, ...]) -> dict[str, Any] | None:
    """Return normalizer steps as the member ``normalizer`` of a tokenizer.json."""
    return _join([_step(step) for step in steps], "normalizers")


def decoder_member(steps: tuple[DecoderStep, ...]) -> dict[str, Any] | None:
    """Return decoder steps as the member ``decoder`` of a tokenizer.json."""
    return _join([_decoder(step) for step in steps], "decoders")


def _join(parts: list[dict[str, Any]], member: str) -> dict[str, Any] | None:
    if len(parts) > 1:
        return {"type": "Sequence", member: parts}
    return parts[0] if parts else None


def _metaspace(spec: MetaspaceSpec) -> dict[str, Any]:
    return {
        "type": "Metaspace",
        "replacement": spec.replacement,
        "prepend_scheme": spec.prepend_scheme,
        "split": spec.split,
    }


def _replace(step: ReplaceStep) -> dict[str, Any]:
    kind = "Regex" if step.regex else "String"
    return {"type": "Replace", "pattern": {kind: step.pattern}, "content": step.content}


def _step(step: NormalizerStep) -> dict[str, Any]:
    if isinstance(step, CharsmapStep):
        rules = base64.b64encode(step.charsmap).decode("ascii")
        return {"type": "Precompiled", "precompiled_charsmap": rules}
    if isinstance(step, ReplaceStep):
        return _replace(step)
    if isinstance(step, UnicodeFormStep):
        return {"type": step.form}
    if isinstance(step, StripAccentsStep):
        return {"type": "StripAccents"}
    if isinstance(step, LowercaseStep):
        return {"type": "Lowercase"}
    if isinstance(step, StripStep):
        return {"type": "Strip", "strip_left": step.left, "strip_right": step.right}
    assert isinstance(step, PrependStep)
    return {"type": "Prepend", "prepend": step.prefix}


def _decoder(step: DecoderStep) -> dict[str, Any]:
    if isinstance(step, MetaspaceSpec):
        return _metaspace(step)
    if isinstance(step, ReplaceStep):
        return _replace(step)
    if isinstance(step, ByteFallbackStep):
        return {"type": "ByteFallback"}
    if isinstance(step, FuseStep):
        return {"type": "Fuse"}
    assert isinstance(step, StripTokensStep)
    return {"type": "Strip", "content": step.content, "start": step.start, "stop": step.stop}
