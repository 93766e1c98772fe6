"""Reads the members of a tokenizer.json that belong to a Unigram model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from encoder_engine.strings import find_surrogate
from encoder_engine.text.formats.json_reading import MAX_ID
from encoder_engine.text.formats.steps_json import listed, read_metaspace, read_normalizer
from encoder_engine.text.spec.unigram import UnigramSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.spec.unigram import MetaspaceSpec

__all__ = ["read_pieces", "read_unigram"]


def read_unigram(top: JsonValue) -> UnigramSpec:
    """Read the Unigram model, the normalizer and the pre-tokenizer of a tokenizer.json."""
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
        normalizer=read_normalizer(top.get("normalizer")),
        whitespace_split=split,
        metaspace=metaspace,
    )


def read_pieces(node: JsonValue) -> tuple[Sequence[str], Sequence[float]]:
    """Read a Unigram vocabulary: its pieces and their scores; a piece's index is its id."""
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


def _read_pre_tokenizer(node: JsonValue) -> tuple[bool, MetaspaceSpec | None]:
    """Read a pre-tokenizer of at most one WhitespaceSplit followed by at most one Metaspace."""
    split, metaspace = False, None
    for item in listed(node, "pretokenizers"):
        kind = item.kind()
        if kind == "WhitespaceSplit" and not split and metaspace is None:
            item.only_keys(("type",))
            split = True
        elif kind == "Metaspace" and metaspace is None:
            metaspace = read_metaspace(item)
        else:
            raise item.fail(
                f"the pre-tokenizer {kind} is not supported with Unigram here; WhitespaceSplit, "
                "Metaspace, and WhitespaceSplit followed by Metaspace are"
            )
    return split, metaspace
