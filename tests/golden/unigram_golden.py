"""Makes unigram_golden.json: what tokenizers and sentencepiece give for small Unigram models.

python tests/golden/unigram_golden.py

One model is written as a tokenizer.json and as SentencePiece's .model, by this script and not by a
trainer, whose results differ from release to release.
"""

# ruff: noqa: RUF001

from __future__ import annotations

import base64
import json
import lzma
import struct
import sys
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.processors import TemplateProcessing

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.text.charsmaps import build_charsmap

WORDS = (
    *("▁low", "low", "er", "est", "▁lower", "▁want", "want", "ed", "▁un", "ing", "▁run", "n", "▁"),
    *("l", "o", "w", "e", "r", "s", "t", "a", "b", "▁a", "ab", "ba", "▁ab", "fi", "▁fi", "nd", "d"),
    *("中", "国", "中国", "▁中", "é", "ga", "ガ", ".", ",", "...", "!", "'", "u", "i", "g", "f"),
)
RULES = {
    "ﬁ": "fi",
    "e\u0301": "é",
    "\u3000": " ",
    "\t": " ",
    "ｶﾞ": "ガ",
    "…": "...",
    "\u200b": "",
    "Ｌ": "l",
    "a\u0308b": "ab",
}
TEXTS = (
    "unwanted, running",
    "",
    "  low   lower \t lowest  ",
    "<s>low</s> <mask> <unk>",
    "中国中 a中",
    "ﬁnd ﬁ… ｶﾞ ga",
    "e\u0301 é e\u0301\u0302 a\u0308b a\u0308 b",
    "xyz lowx 😀😀 low",
    "▁low ▁▁ low▁er",
    "\u200blow\u200b \u3000Ｌow\x00",
    "ababab abba 'a' !!",
    "한국 low\nlow",
)
SCORES = [-3.0 - (number * 13 % 29) * 0.37 for number in range(len(WORDS))]
CONTROLS = ("<unk>", "<s>", "</s>", "<pad>", "<mask>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def field(number: int, value: float | str | bytes | bool | int) -> bytes:
    """Write one field of a protocol buffer."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return varint(number << 3 | 2) + varint(len(raw)) + raw
    return varint(number << 3) + varint(int(value))


def varint(value: int) -> bytes:
    """Write a number in groups of seven bits."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def model(*, bytes_too: bool, suffix: bool = False) -> bytes:
    """Write the model as SentencePiece has it; kinds: 2 unknown, 3 control, 1 normal, 6 byte."""
    pieces = [("<unk>", 0.0, 2), *((name, 0.0, 3) for name in CONTROLS[1:4]), ("<mask>", 0.0, 4)]
    pieces += [(word, score, 1) for word, score in zip(WORDS, SCORES, strict=True)]
    pieces += [(byte, 0.0, 6) for byte in BYTES] if bytes_too else []
    out = b"".join(
        field(1, field(1, text) + field(2, score) + field(3, kind)) for text, score, kind in pieces
    )
    trainer = field(3, 1) + field(35, bytes_too) + field(24, suffix)
    rules = field(1, "golden") + field(2, build_charsmap(RULES))
    return (
        out + field(2, trainer) + field(3, rules + field(3, True) + field(4, True) + field(5, True))
    )


def build(*, bytes_too: bool) -> Tokenizer:
    """Build the tokenizer of the same pieces and rules, with XLM-R's template."""
    vocab: list[tuple[str, float]] = [(name, 0.0) for name in CONTROLS]
    vocab += list(zip(WORDS, SCORES, strict=True))
    vocab += [(byte, -20.0) for byte in BYTES] if bytes_too else []
    tokenizer = Tokenizer(tokenizers.models.Unigram(vocab, unk_id=0, byte_fallback=bytes_too))
    charsmap = base64.b64encode(build_charsmap(RULES)).decode()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    tokenizer.add_special_tokens([*CONTROLS[:4], tokenizers.AddedToken("<mask>", lstrip=True)])
    state = json.loads(tokenizer.to_str())
    rules = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    state["normalizer"] = {"type": "Sequence", "normalizers": [rules, spaces]}
    return Tokenizer.from_str(json.dumps(state))


def packed(file: bytes) -> str:
    """Pack a file; most of it is the empty space of the compiled rules."""
    return base64.b64encode(lzma.compress(file)).decode()


def row(encoding: Any) -> dict[str, Any]:
    """Write down one row."""
    return {
        "ids": encoding.ids,
        "offsets": encoding.offsets,
        "word_ids": [-1 if word is None else word for word in encoding.word_ids],
    }


def main() -> None:
    """Write the file."""
    versions = f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}"
    golden: dict[str, Any] = {"made_with": versions, "texts": TEXTS, "json": [], "model": []}
    for bytes_too in (False, True):
        tokenizer = build(bytes_too=bytes_too)
        rows = [tokenizer.encode(text) for text in TEXTS]
        pairs = zip(TEXTS, TEXTS[::-1], strict=True)
        golden["json"].append(
            {
                "tokenizer": packed(tokenizer.to_str().encode()),
                "texts": [row(encoding) for encoding in rows],
                "pairs": [row(tokenizer.encode(*pair)) for pair in pairs],
                "decoded": [tokenizer.decode(encoding.ids) for encoding in rows],
            }
        )
    for bytes_too, suffix in ((False, False), (True, False), (False, True)):
        proto = model(bytes_too=bytes_too, suffix=suffix)
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        found = [processor.encode(text, return_type="offset_mapping") for text in TEXTS]
        golden["model"].append(
            {
                "proto": packed(proto),
                "ids": [one["ids"] for one in found],
                "offsets": [one["offsets"] for one in found],
                "decoded": [processor.decode(one["ids"]) for one in found],
            }
        )
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
