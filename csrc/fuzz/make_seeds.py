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
NUM_TOKENIZERS = 16
# Offsets or none; a batch or none; fresh caches or old ones.
CHECKS = (0, 1, 2, 3)
# What took a bug to find: each stays.
FOUND = (
    "i\0",  # a zero at the end of a word, in an uncleaned text
    "\ud800",
    "a" * 17 + "\0" * 3,
)
# Words and texts around the sizes at which caches and chunks change.
EDGES = tuple("ab" * half + " " + "\u00e9" * half for half in (4, 8, 9, 16, 17, 32, 64, 128, 129))
EDGES += tuple("low\u00e9r " * (size // 6) + "ab" * (size % 6) for size in (250, 1020, 1026, 2050))


def seeds(texts: list[str]) -> list[bytes]:
    """Give each text to a few tokenizers, in turn."""
    out = []
    for number, text in enumerate(texts):
        for turn in range(4):
            header = ((5 * number + 4 * turn) % NUM_TOKENIZERS, CHECKS[turn], (7 * number) % 64)
            out.append(bytes(header) + text.encode("utf-8", "surrogatepass"))
    return out


def main(folder: Path, files: list[Path]) -> None:
    """Write a file for each input, named by its hash."""
    texts = json.loads(GOLDEN.read_text(encoding="utf-8"))["texts"]
    for file in files:
        texts += file.read_text(encoding="utf-8", errors="replace").split("\n")
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds([*texts, *FOUND, *EDGES]):
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
