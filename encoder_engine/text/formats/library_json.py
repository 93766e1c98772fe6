"""Reads and writes the tokenizer.json of a model that Hugging Face tokenizers encodes with."""

from __future__ import annotations

import json
import math
from itertools import count
from typing import TYPE_CHECKING, Any

from encoder_engine.text.extension import extension
from encoder_engine.text.formats.bpe_json import check_merges
from encoder_engine.text.formats.json_reading import compact_json, read_token_ids
from encoder_engine.text.formats.unigram_json import read_pieces
from encoder_engine.text.spec.library import LibraryDecoderSpec, LibrarySpec, OffsetTrim

if TYPE_CHECKING:
    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.spec.tokenizer import DecoderSpec

__all__ = [
    "LIBRARY_MODELS",
    "library_members",
    "read_library",
    "read_library_decoder",
    "trimming_member",
]

LIBRARY_MODELS = ("WordLevel",)


def read_library(top: JsonValue, kind: str, reason: str = "") -> LibrarySpec:
    """Read a tokenizer.json for encoding by Hugging Face tokenizers, which checks most members.

    ``reason``: why the engine does not encode a WordPiece, Unigram or BPE model itself.
    """
    node = top.get("model")
    members, unknown = node.object() | {"type": kind}, node.get("unk_token")
    if kind == "Unigram":
        pieces, scores = read_pieces(node.get("vocab"))
        members["vocab"] = [*zip(pieces, map(_as_the_library_reads, scores), strict=True)]
        vocab, num_ids, unk_id = dict(zip(pieces, count())), len(pieces), node.get("unk_id")
        if not unk_id.is_null:
            unknown = unk_id.at(pieces[unk_id.integer(most=num_ids - 1)], "")
    else:
        vocab = dict(read_token_ids(node.get("vocab")))
        num_ids = len(vocab)
        if kind == "BPE":
            check_merges(node)
    dropout = node.get("dropout")
    if dropout.value:
        raise dropout.fail("dropout makes every encoding different; set it to null")
    return LibrarySpec(
        kind=kind,
        reason=reason or f"the engine has no {kind} model of its own",
        normalizer=compact_json(top.get("normalizer").value),
        pre_tokenizer=compact_json(top.get("pre_tokenizer").value),
        model=compact_json(members),
        vocab=vocab,
        num_ids=num_ids,
        unk_token=None if unknown.is_null else unknown.string() or None,
    )


def _as_the_library_reads(score: float) -> float:
    """Return a number that Hugging Face tokenizers parses from JSON as ``score``, bit for bit."""
    near = (score, math.nextafter(score, math.inf), math.nextafter(score, -math.inf))
    read = extension().read_json_number
    return next((number for number in near if read(repr(number)) == score), score)


def read_library_decoder(node: JsonValue) -> LibraryDecoderSpec | None:
    """Return the member ``decoder`` for Hugging Face tokenizers; None if the file has none."""
    return None if node.is_null else LibraryDecoderSpec(decoder=compact_json(node.value))


def library_members(model: LibrarySpec, decoder: DecoderSpec | None) -> dict[str, Any]:
    """Return the model, normalizer, pre-tokenizer and decoder as members of a tokenizer.json."""
    return {
        "normalizer": json.loads(model.normalizer),
        "pre_tokenizer": json.loads(model.pre_tokenizer),
        "decoder": json.loads(decoder.decoder) if isinstance(decoder, LibraryDecoderSpec) else None,
        "model": json.loads(model.model),
    }


def trimming_member(trim: OffsetTrim) -> dict[str, Any]:
    """Return a ``post_processor`` of a tokenizer.json that only trims offsets."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": trim.add_prefix_space,
        "trim_offsets": True,
        "use_regex": True,
    }
