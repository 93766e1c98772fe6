"""Reads the members of a tokenizer.json that belong to a BPE model.

Settings that are not recognised exactly are refused with a reason, and Hugging Face tokenizers
("the library") encodes instead: no regular expression is interpreted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.text.byte_level import BYTE_LETTERS
from encoder_engine.text.formats.json_reading import compact_json, read_token_ids
from encoder_engine.text.formats.steps_json import (
    listed,
    read_decoder_steps,
    read_metaspace,
    read_normalizer,
)
from encoder_engine.text.spec.bpe import BpeSpec, BpeSplitting, ByteLevelDecoderSpec
from encoder_engine.text.spec.unigram import ReplaceStep
from encoder_engine.text.vocabulary import NativeMerges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.spec.bpe import WordPattern
    from encoder_engine.text.spec.unigram import DecoderSteps, NormalizerStep

__all__ = ["bpe_model_member", "check_merges", "read_bpe", "read_bpe_decoder"]

MARK = "\u2581"
MODEL_KEYS = (
    "type",
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
    "vocab",
    "merges",
    "cache_capacity",
)
# Spellings of the expressions that csrc/text/bpe/matcher.h cuts by, in published files.
# `\s*[\r\n]+` and `\s*[\r\n]` match alike, because `\s*` takes all line ends but the last one;
# so do possessive quantifiers where nothing could be given back.
_MODERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?%s\p{L}+|%s| ?[^\s\p{L}\p{N}]+%s[\r\n]*"
    r"|\s*[\r\n]%s|\s+(?!\S)|\s+"
)
_OTHER = r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
ISOLATED: dict[str, WordPattern] = {
    _MODERN % ("", r"\p{N}", "", "+"): "digits_one",
    _MODERN % ("", r"\p{N}{1,3}", "", "+"): "digits_three",
    _MODERN % ("+", r"\p{N}{1,3}", "+", ""): "digits_three",
    _MODERN % ("", r"\p{N}{1,3}", "", ""): "digits_three",
    r"'s|'t|'re|'ve|'m|'ll|'d" + _OTHER: "gpt2",
    r"'(?:[sdmt]|ll|ve|re)" + _OTHER: "gpt2",
}


def read_bpe(top: JsonValue) -> BpeSpec:
    """Read the BPE model, the normalizer and the pre-tokenizer of a tokenizer.json.

    Raises :class:`TokenizerFileError` for settings that the engine does not implement.
    """
    node = top.get("model")
    node.only_keys(MODEL_KEYS)
    dropout, prefix = node.get("dropout"), node.get("continuing_subword_prefix")
    if dropout.value:
        raise dropout.fail("dropout makes every encoding different; set it to null")
    if prefix.value:
        check_merges(node)
        raise prefix.fail("a prefix of later pieces is not the engine's")
    normalizer = read_normalizer(top.get("normalizer"))
    splitting = _read_splitting(top.get("pre_tokenizer"), normalizer)
    unknown = node.get("unk_token")
    spec = BpeSpec(
        vocab=read_token_ids(node.get("vocab")),
        merges=_read_merges(node.get("merges")),
        unk_token=None if unknown.is_null else unknown.string() or None,
        suffix=node.get("end_of_word_suffix").optional(type(node).string) or "",
        ignore_merges=node.get("ignore_merges").boolean(default=False),
        byte_fallback=node.get("byte_fallback").boolean(default=False),
        fuse_unk=node.get("fuse_unk").boolean(default=False),
        normalizer=normalizer,
        pre_tokenizer=compact_json(top.get("pre_tokenizer").value),
        splitting=splitting,
    )
    _check(spec, node)
    return spec


def check_merges(node: JsonValue) -> None:
    """Raise TokenizerFileError where a BPE vocabulary lacks a part or the result of a merge.

    Hugging Face tokenizers, which encodes such models, removes as many bytes from the right part as
    ``continuing_subword_prefix`` has, whichever these are, and ends the process if that splits a
    character.
    """
    vocab = read_token_ids(node.get("vocab"))
    prefix = node.get("continuing_subword_prefix").optional(type(node).string) or ""
    merges, size = node.get("merges"), len(prefix.encode())
    for place, (left, right) in enumerate(_read_merges(merges)):
        here = merges.at(None, f"[{place}]")
        fault = f"the merge of {left!r} and {right!r} has"
        if left not in vocab or right not in vocab:
            raise here.fail(f"{fault} a part that is not in the vocabulary")
        encoded = right.encode()
        if len(encoded) < size or 0x80 <= (encoded[size:] or b"a")[0] < 0xC0:
            raise here.fail(f"{fault} a right part without the prefix {prefix!r}")
        whole = left + encoded[size:].decode()
        if whole not in vocab:
            raise here.fail(f"{fault} the result {whole!r}, which is not in the vocabulary")


def _check(spec: BpeSpec, node: JsonValue) -> None:
    """Refuse a BPE model that the extension does not encode as Hugging Face tokenizers does."""
    if spec.splitting.byte_level:
        if spec.byte_fallback:
            raise node.get("byte_fallback").fail("of a byte-level model, it is not the engine's")
        if spec.ignore_merges and spec.suffix:
            raise node.get("ignore_merges").fail("with a suffix, it is not the engine's")
    else:
        for name in ("ignore_merges", "end_of_word_suffix"):
            if node.get(name).value:
                raise node.get(name).fail("in a model of characters, it is not the engine's")
        known = spec.unk_token is not None and spec.unk_token in spec.vocab
        if not (spec.byte_fallback or known):
            raise node.get("unk_token").fail(
                "characters without a token would vanish, which is not the engine's way"
            )
    refusal = spec.model.refusal()
    if refusal is None:
        return
    why, place = refusal
    if why == "missing_symbol":
        letter = BYTE_LETTERS[place] if place < 256 else chr(place)
        symbol = f"<0x{place:02X}>" if spec.byte_fallback and place < 256 else letter + spec.suffix
        raise node.get("vocab").fail(f"it lacks {symbol!r}, and every text may hold that symbol")
    if why == "too_large":
        raise node.fail(f"{place} is more ids or merges than the engine's tables hold")
    left, right = spec.merges[place]
    reasons = {
        "missing_part": "a part that is not in the vocabulary",
        "missing_result": f"the result {left + right!r}, which is not in the vocabulary",
        "special_merge": "the unknown token or the token of a byte",
        "suffix_inside": f"the suffix {spec.suffix!r} within a word",
    }
    raise (
        node.get("merges")
        .at(None, f"[{place}]")
        .fail(f"the merge of {left!r} and {right!r} has {reasons[why]}")
    )


def _read_merges(node: JsonValue) -> Sequence[tuple[str, str]]:
    if isinstance(node.value, NativeMerges):
        return node.value
    merges: list[tuple[str, str]] = []
    pairs = isinstance(node.value, list) and bool(node.value) and isinstance(node.value[0], list)
    for item in node.items():
        if pairs:
            parts = [part.string() for part in item.items()]
        else:
            text = item.string()
            if text.startswith("#version"):
                continue
            parts = text.split(" ")
        if len(parts) != 2:
            raise item.must_be("the two parts of a merge, as all others are written")
        merges.append((parts[0], parts[1]))
    return tuple(merges)


def _read_splitting(node: JsonValue, normalizer: tuple[NormalizerStep, ...]) -> BpeSplitting:
    steps = listed(node, "pretokenizers")
    kinds = [step.kind() for step in steps]
    if not steps:
        return BpeSplitting(byte_level=False, pattern="blanks")
    if kinds == ["Metaspace"]:
        metaspace = read_metaspace(steps[0])
        if metaspace.replacement != MARK:
            raise steps[0].fail(
                f"the mark {metaspace.replacement!r} of a space is not the engine's"
            )
        pattern: WordPattern = "marks" if metaspace.split else "blanks"
        return BpeSplitting(byte_level=False, pattern=pattern, metaspace=metaspace)
    if kinds == ["Split"] and _splits_nothing(steps[0], normalizer):
        return BpeSplitting(byte_level=False, pattern="blanks")
    if kinds[-1] != "ByteLevel" or len(steps) > 2:
        raise node.fail(
            f"the pre-tokenizer {' and '.join(kinds)} is not one that the engine cuts words by"
        )
    level = steps[-1]
    level.only_keys(("type", "add_prefix_space", "trim_offsets", "use_regex"))
    prefixed = level.get("add_prefix_space").boolean()
    regex = level.get("use_regex").boolean(default=True)
    if len(steps) == 1:
        pattern = "gpt2" if regex else "whole"
        return BpeSplitting(byte_level=True, pattern=pattern, add_prefix_space=prefixed)
    if prefixed:
        raise level.fail("add_prefix_space behind another pre-tokenizer is not the engine's")
    return BpeSplitting(byte_level=True, pattern=_read_pattern(steps[0], regex=regex))


def _read_pattern(node: JsonValue, *, regex: bool) -> WordPattern:
    """Return the rule for cutting words that a pre-tokenizer before ByteLevel stands for.

    ``regex``: ByteLevel also splits by GPT-2's pattern.
    Raises :class:`TokenizerFileError` for a rule that the engine does not implement.
    """
    kind = node.kind()
    if kind == "Digits" and regex:
        node.only_keys(("type", "individual_digits"))
        if node.get("individual_digits").boolean():
            return "gpt2_digits"
        raise node.fail("digits that stay together are not the engine's")
    if kind != "Split":
        raise node.fail(f"the pre-tokenizer {kind} is not one that the engine cuts words by")
    expression, behavior, invert = _read_split(node)
    if expression == _CLIP and behavior == "Removed" and invert:
        return "clip"  # ByteLevel would cut where the expression does
    if regex or behavior != "Isolated" or invert or expression not in ISOLATED:
        raise node.fail(
            f"the regular expression {expression!r} ({behavior}, invert={invert}, again by "
            f"GPT-2's: {regex}) is not one that the engine cuts words by"
        )
    return ISOLATED[expression]


def _read_split(node: JsonValue) -> tuple[str, str, bool]:
    node.only_keys(("type", "pattern", "behavior", "invert"))
    pattern = node.get("pattern")
    pattern.only_keys(("Regex",))
    return (
        pattern.get("Regex").string(),
        node.get("behavior").string(),
        node.get("invert").boolean(default=False),
    )


def _splits_nothing(node: JsonValue, normalizer: tuple[NormalizerStep, ...]) -> bool:
    """Return whether a pre-tokenizer splits at spaces that the normalizer has replaced (Gemma)."""
    pattern = node.get("pattern").value
    last = normalizer[-1] if normalizer else None
    if not isinstance(last, ReplaceStep) or last.regex or last.pattern != " ":
        return False
    return pattern == {"String": " "} and " " not in last.content


def read_bpe_decoder(node: JsonValue) -> ByteLevelDecoderSpec | DecoderSteps | None:
    """Read the ``decoder`` of a tokenizer.json with a BPE model; None: it has none."""
    if not node.is_null and node.kind() == "ByteLevel":
        return ByteLevelDecoderSpec(decoder=compact_json(node.value))
    return read_decoder_steps(node)


def bpe_model_member(model: BpeSpec) -> dict[str, Any]:
    """Return a BPE model as the member ``model`` of a tokenizer.json."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.unk_token,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": model.suffix or None,
        "fuse_unk": model.fuse_unk,
        "byte_fallback": model.byte_fallback,
        "ignore_merges": model.ignore_merges,
        "vocab": dict(sorted(model.vocab.items(), key=lambda item: item[1])),
        "merges": [list(merge) for merge in model.merges],
    }
