"""Writes seeds for the fuzz targets: ``python csrc/fuzz/make_seeds.py FOLDER [TEXT FILE]...``.

The texts are those of the golden files and of the tests' strings, and lines of any files named.
An input is a header of three bytes - which tokenizer, which checks, which limit - and a text.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer_golden.json"
NUM_TOKENIZERS = 32
# Offsets or none; a batch or none; fresh caches or old ones; parts as rows of a batch or not.
CHECKS = (0, 1, 2, 3, 4, 5)
# What took a bug to find: each stays.
FOUND = (
    "i\0",  # a zero at the end of a word, in an uncleaned text
    "\ud800",
    "a" * 17 + "\0" * 3,
    "don't !!! ' s low ' s",  # unknown characters, and a word whose mark goes with them
)
# Words and texts around the sizes at which caches and chunks change.
EDGES = tuple("ab" * half + " " + "\u00e9" * half for half in (4, 8, 9, 16, 17, 32, 64, 128, 129))
EDGES += tuple("low\u00e9r " * (size // 6) + "ab" * (size % 6) for size in (250, 1020, 1026, 2050))
# Clusters of characters, and what rules on them know.
CLUSTERS = (
    "n\u200d n\u200c x\ufe0f 9\ufe0f \u00a9\ufe0f \u0660\u0301 w\u093f \u0915\u094d\u0937",
    "\u1100\u1161\u11a8 \uac00\u11a8 \u1161 \u304b\u3099 \uff76\uff9e \u3042\u3099",
    "\U0001f600\U0001f3fb\u200d\U0001f600 \U0001f1e6\U0001f1e7\U0001f1e6 \U0001f468\u200d",
    "a\u0301b a\u0323 \u0301\u0323 e\u0301 \u00e9\u0323 l\u0301 \u0308 \u2581\u0301",
    "\x01\x01 low\x01 \u200b \u200blow\u200ber\ufe0f low er \u00ad\u0600a \ufdfa \u00bd \u2026",
    "  low  er\u3000lower\u2581\u2581lowers \u2581 is \u2581the [M]ab==x \u4e2d\u56fd\u4e2d ",
)
# For the reader of vocabularies: what stands around, and a value or a part of one.
VOCABULARIES = (
    '\0{"version": "1.0", "model": {"type": "WordPiece", "vocab": {"a": 0, "##b": 1}}}',
    '\1{"u": 0, "\\u00e9\\ud83d\\ude00": 5,\n        "\u4e2d\U0001f600": 16777215}',
    '\1[["u", 0], ["a", -1.5e-3], [ "" , 1E+22 ], ["a", 0.12345678901234567]]',
    '\2"u": 0, "a\\n\\"\\\\": 1',
    "\3-20.364700317382812",
    "\4\\t\\/b",
)


def seeds(texts: list[str]) -> list[bytes]:
    """Give each text to a few tokenizers, in turn."""
    out = []
    for number, text in enumerate(texts):
        for turn, checks in enumerate(CHECKS):
            header = ((5 * number + 4 * turn) % NUM_TOKENIZERS, checks, (7 * number) % 64)
            out.append(bytes(header) + text.encode("utf-8", "surrogatepass"))
    return out + [text.encode() for text in VOCABULARIES]


def main(folder: Path, files: list[Path]) -> None:
    """Write a file for each input, named by its hash."""
    texts = json.loads(GOLDEN.read_text(encoding="utf-8"))["texts"]
    for file in files:
        texts += file.read_text(encoding="utf-8", errors="replace").split("\n")
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds([*texts, *FOUND, *EDGES, *CLUSTERS]):
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
