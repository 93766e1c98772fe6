"""Reads the members of a tokenizer.json that belong to a Unigram model."""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING

from encoder_engine.strings import find_surrogate
from encoder_engine.text.formats.charsmap import check_charsmap
from encoder_engine.text.formats.json_reading import MAX_ID
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
    UnigramSpec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.spec.unigram import DecoderStep, NormalizerStep

__all__ = ["read_pieces", "read_unigram", "read_unigram_decoder"]

SCHEMES = {"always": "always", "first": "first", "never": "never"}
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def read_unigram(top: JsonValue) -> UnigramSpec:
    """Read the model, the normalizer and the pre-tokenizer of a whole file."""
    node = top.get("model")
    node.only_keys(("type", "unk_id", "vocab", "byte_fallback"))
    pieces, scores = read_pieces(node.get("vocab"))
    if node.get("unk_id").is_null:
        raise node.get("unk_id").fail(
            "a Unigram model without an unknown token is not supported; name one of its pieces"
        )
    unk_id = node.get("unk_id").integer()
    if unk_id >= len(pieces):
        raise node.get("unk_id").fail(f"{unk_id} is not among the {len(pieces)} pieces")
    split, metaspace = _read_pre_tokenizer(top.get("pre_tokenizer"))
    return UnigramSpec(
        pieces=pieces,
        scores=scores,
        unk_id=unk_id,
        byte_fallback=node.get("byte_fallback").boolean(default=False),
        normalizer=_read_normalizer(top.get("normalizer")),
        whitespace_split=split,
        metaspace=metaspace,
    )


def read_pieces(node: JsonValue) -> tuple[Sequence[str], Sequence[float]]:
    """Read the pieces by their ids, and their scores."""
    items = node.value
    if isinstance(items, tuple):  # JSON has none: these are the extension's
        pieces, scores = items
        return pieces, scores
    if not isinstance(items, list) or not items:
        raise node.must_be("pieces with their scores")
    if len(items) > MAX_ID + 1:
        raise node.fail(f"{len(items)} pieces, supported are at most {MAX_ID + 1}")
    for index, item in enumerate(items):
        if (
            type(item) is not list
            or len(item) != 2
            or type(item[0]) is not str
            or type(item[1]) not in (float, int)
        ):
            raise node.at(item, f"[{index}]").must_be("a piece and its score")
    pieces = tuple([item[0] for item in items])
    scores = tuple([_as_float(item[1]) for item in items])
    if not all(map(math.isfinite, scores)):
        index = next(i for i, score in enumerate(scores) if not math.isfinite(score))
        raise node.at(items[index][1], f"[{index}]").must_be("a finite score")
    if find_surrogate("".join(pieces)) is not None:
        for piece in pieces:
            node.at(piece, "").string()
    return pieces, scores


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf


def _listed(node: JsonValue, member: str) -> list[JsonValue]:
    """Return the members of a Sequence, nested ones flattened, or a single value as a list."""
    if node.is_null:
        return []
    if node.kind() != "Sequence":
        return [node]
    node.only_keys(("type", member))
    return [inner for item in node.get(member).items() for inner in _listed(item, member)]


def _read_normalizer(node: JsonValue) -> tuple[NormalizerStep, ...]:
    return tuple(_read_step(item) for item in _listed(node, "normalizers"))


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
            f"the normalizer {kind} is not supported with Unigram; Precompiled, Replace, NFC, NFD, "
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


def _read_pre_tokenizer(node: JsonValue) -> tuple[bool, MetaspaceSpec | None]:
    """Read at most a WhitespaceSplit and then at most a Metaspace."""
    split, metaspace = False, None
    for item in _listed(node, "pretokenizers"):
        kind = item.kind()
        if kind == "WhitespaceSplit" and not split and metaspace is None:
            item.only_keys(("type",))
            split = True
        elif kind == "Metaspace" and metaspace is None:
            metaspace = _read_metaspace(item)
        else:
            raise item.fail(
                f"the pre-tokenizer {kind} is not supported with Unigram here; WhitespaceSplit, "
                "Metaspace, and WhitespaceSplit followed by Metaspace are"
            )
    return split, metaspace


def _read_metaspace(node: JsonValue) -> MetaspaceSpec:
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


def read_unigram_decoder(node: JsonValue) -> DecoderSteps | None:
    """Read the decoder of a Unigram model."""
    if node.is_null:
        return None
    return DecoderSteps(steps=tuple(_read_decoder(item) for item in _listed(node, "decoders")))


def _read_decoder(node: JsonValue) -> DecoderStep:
    kind = node.kind()
    if kind == "Metaspace":
        return _read_metaspace(node)
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
            f"the decoder {kind} is not supported with Unigram; Metaspace, Replace, ByteFallback, "
            "Fuse, Strip and Sequence are"
        )
    node.only_keys(("type",))
    return ByteFallbackStep() if kind == "ByteFallback" else FuseStep()
