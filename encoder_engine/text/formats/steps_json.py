"""Reads the normalizers and decoders of a tokenizer.json that the engine itself implements."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from encoder_engine.text.spec.charsmap import check_charsmap
from encoder_engine.text.spec.unigram import (
    REGEXES,
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
    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.spec.unigram import DecoderStep, NormalizerStep

__all__ = ["listed", "read_decoder_steps", "read_metaspace", "read_normalizer"]

SCHEMES = {"always": "always", "first": "first", "never": "never"}
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def listed(node: JsonValue, member: str) -> list[JsonValue]:
    """Return the members of a tokenizer.json's Sequence, flattened; a single value in a list."""
    if node.is_null:
        return []
    if node.kind() != "Sequence":
        return [node]
    node.only_keys(("type", member))
    return [inner for item in node.get(member).items() for inner in listed(item, member)]


def read_normalizer(node: JsonValue) -> tuple[NormalizerStep, ...]:
    """Read a tokenizer.json's ``normalizer`` as the steps that it applies."""
    return tuple(_read_step(item) for item in listed(node, "normalizers"))


def _read_step(node: JsonValue) -> NormalizerStep:
    kind = node.kind()
    if kind == "Precompiled":
        node.only_keys(("type", "precompiled_charsmap"))
        return _read_charsmap(node.get("precompiled_charsmap"))
    if kind == "Replace":
        return _read_replace(node, regexes=True)
    if kind == "Strip":
        node.only_keys(("type", "strip_left", "strip_right"))
        return StripStep(
            left=node.get("strip_left").boolean(), right=node.get("strip_right").boolean()
        )
    if kind == "Prepend":
        node.only_keys(("type", "prepend"))
        return PrependStep(prefix=node.get("prepend").string())
    if kind not in (*FORMS, "StripAccents", "Lowercase"):
        raise node.get("type").fail(
            f"the normalizer {kind} is not the engine's; Precompiled, Replace, NFC, NFD, "
            "NFKC, NFKD, StripAccents, Lowercase, Strip, Prepend and Sequence are"
        )
    node.only_keys(("type",))
    if kind == "StripAccents":
        return StripAccentsStep()
    if kind == "Lowercase":
        return LowercaseStep()
    return UnicodeFormStep(form=node.get("type").one_of({form: form for form in FORMS}))


def _read_charsmap(node: JsonValue) -> CharsmapStep:
    try:
        charsmap = base64.b64decode(node.string(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise node.fail(f"this is not base64: {error}") from error
    check_charsmap(charsmap, node.where)
    return CharsmapStep(charsmap=charsmap)


def _read_replace(node: JsonValue, *, regexes: bool) -> ReplaceStep:
    node.only_keys(("type", "pattern", "content"))
    pattern = node.get("pattern")
    pattern.only_keys(("String", "Regex"))
    if len(pattern.object()) != 1:
        raise pattern.must_be("either a String or a Regex")
    content = node.get("content").string()
    if "String" in pattern.object():
        text = pattern.get("String").string()
        if not text:
            raise pattern.fail("an empty pattern is not supported")
        return ReplaceStep(pattern=text, regex=False, content=content)
    text = pattern.get("Regex").string()
    if not regexes or text not in REGEXES:
        known = ", ".join(map(repr, REGEXES)) if regexes else "none"
        raise pattern.fail(f"the regular expression {text!r} is not supported here; {known} is")
    return ReplaceStep(pattern=text, regex=True, content=content)


def read_metaspace(node: JsonValue) -> MetaspaceSpec:
    """Read a tokenizer.json's Metaspace pre-tokenizer or decoder."""
    node.only_keys(
        ("type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split")
    )
    replacement = node.get("replacement").string()
    if len(replacement) != 1:
        raise node.get("replacement").must_be("one character")
    scheme = node.get("prepend_scheme").one_of(SCHEMES, default="always")
    if not node.get("add_prefix_space").boolean(default=True) and scheme != "never":
        raise node.fail("add_prefix_space is false, but prepend_scheme is not 'never'")
    return MetaspaceSpec(
        replacement=replacement,
        prepend_scheme=scheme,
        split=node.get("split").boolean(default=True),
    )


def read_decoder_steps(node: JsonValue) -> DecoderSteps | None:
    """Read a tokenizer.json's ``decoder`` as the steps that it applies; None: it has none."""
    if node.is_null:
        return None
    return DecoderSteps(steps=tuple(_read_decoder(item) for item in listed(node, "decoders")))


def _read_decoder(node: JsonValue) -> DecoderStep:
    kind = node.kind()
    if kind == "Metaspace":
        return read_metaspace(node)
    if kind == "Replace":
        return _read_replace(node, regexes=False)
    if kind == "Strip":
        node.only_keys(("type", "content", "start", "stop"))
        content = node.get("content").string()
        if len(content) != 1:
            raise node.get("content").must_be("one character")
        return StripTokensStep(
            content=content, start=node.get("start").integer(), stop=node.get("stop").integer()
        )
    if kind not in ("ByteFallback", "Fuse"):
        raise node.get("type").fail(
            f"the decoder {kind} is not the engine's; Metaspace, Replace, ByteFallback, "
            "Fuse, Strip and Sequence are"
        )
    node.only_keys(("type",))
    return ByteFallbackStep() if kind == "ByteFallback" else FuseStep()
