"""Reads and writes the members of a tokenizer.json that belong to a WordPiece model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.text.formats.json_reading import MAX_ID
from encoder_engine.text.spec.tokenizer import (
    BertNormalizerSpec,
    WordPieceDecoderSpec,
    WordPieceSpec,
)
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.spec.tokenizer import TokenizerSpec

__all__ = ["read_wordpiece", "read_wordpiece_decoder", "wordpiece_members"]


def read_wordpiece(top: JsonValue) -> WordPieceSpec:
    """Read the WordPiece model, the normalizer and the pre-tokenizer of a tokenizer.json."""
    node = top.get("model")
    node.only_keys(
        ("type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
    )
    vocab = _read_vocab(node)
    unknown = node.get("unk_token").string()
    if unknown not in vocab:
        raise node.get("unk_token").fail(f"{unknown!r} is not in the vocabulary")
    _check_pre_tokenizer(top.get("pre_tokenizer"))
    return WordPieceSpec(
        vocab=vocab,
        unk_token=unknown,
        continuing_subword_prefix=node.get("continuing_subword_prefix").string(),
        max_input_chars_per_word=node.get("max_input_chars_per_word").integer(),
        normalizer=_read_normalizer(top.get("normalizer")),
    )


def _read_vocab(node: JsonValue) -> Mapping[str, int]:
    found = node.get("vocab")
    if isinstance(found.value, NativeVocabulary):
        return found.value
    vocab = found.object()
    if not "".join(vocab).isascii():
        for token in vocab:
            found.at(token, "").string()
    for token, number in vocab.items():
        if type(number) is not int or not 0 <= number <= MAX_ID:
            place = found.at(number, f"[{token!r}]")
            raise place.must_be(f"an integer from 0 to {MAX_ID}")
    _check_distinct(node, vocab)
    return vocab


def _check_distinct(node: JsonValue, vocab: dict[str, int]) -> None:
    if len(set(vocab.values())) == len(vocab):
        return
    owner: dict[int, str] = {}
    for token, number in vocab.items():
        if number in owner:
            raise node.get("vocab").fail(f"{owner[number]!r} and {token!r} share the id {number}")
        owner[number] = token


def _unwrap(node: JsonValue, member: str) -> JsonValue:
    """Return the only member of a tokenizer.json's Sequence of one; other values unchanged."""
    if not node.is_null and node.kind() == "Sequence":
        node.only_keys(("type", member))
        inner = node.get(member).items()
        if len(inner) == 1:
            return inner[0]
    return node


def _read_normalizer(node: JsonValue) -> BertNormalizerSpec:
    node = _unwrap(node, "normalizers")
    if node.is_null:
        return BertNormalizerSpec(
            clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False
        )
    kind = node.kind()
    if kind != "BertNormalizer":
        raise node.get("type").fail(
            f"the normalizer {kind} is not supported with WordPiece; BertNormalizer is"
        )
    node.only_keys(("type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"))
    accents = node.get("strip_accents")
    return BertNormalizerSpec(
        clean_text=node.get("clean_text").boolean(),
        handle_chinese_chars=node.get("handle_chinese_chars").boolean(),
        strip_accents=None if accents.is_null else accents.boolean(),
        lowercase=node.get("lowercase").boolean(),
    )


def _check_pre_tokenizer(node: JsonValue) -> None:
    node = _unwrap(node, "pretokenizers")
    kind = "null" if node.is_null else node.kind()
    if kind != "BertPreTokenizer":
        raise node.fail(
            f"the pre-tokenizer {kind} is not supported with WordPiece; BertPreTokenizer is"
        )
    node.only_keys(("type",))


def read_wordpiece_decoder(node: JsonValue) -> WordPieceDecoderSpec | None:
    """Read the ``decoder`` of a tokenizer.json with a WordPiece model; None: it has none."""
    if node.is_null:
        return None
    kind = node.kind()
    if kind != "WordPiece":
        raise node.get("type").fail(
            f"the decoder {kind} is not supported with WordPiece; WordPiece is"
        )
    node.only_keys(("type", "prefix", "cleanup"))
    return WordPieceDecoderSpec(
        prefix=node.get("prefix").string(), cleanup=node.get("cleanup").boolean()
    )


def wordpiece_members(spec: TokenizerSpec, model: WordPieceSpec) -> dict[str, Any]:
    """Return a WordPiece model, its normalizer and its decoder as members of a tokenizer.json."""
    normalizer, decoder = model.normalizer, spec.decoder
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": normalizer.clean_text,
            "handle_chinese_chars": normalizer.handle_chinese_chars,
            "strip_accents": normalizer.strip_accents,
            "lowercase": normalizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": decoder.prefix, "cleanup": decoder.cleanup}
        if isinstance(decoder, WordPieceDecoderSpec)
        else None,
        "model": {
            "type": "WordPiece",
            "unk_token": model.unk_token,
            "continuing_subword_prefix": model.continuing_subword_prefix,
            "max_input_chars_per_word": model.max_input_chars_per_word,
            "vocab": dict(sorted(model.vocab.items(), key=lambda item: item[1])),
        },
    }
