"""The texts of the tokenizer cases: long, short, and streams without repetitions."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path
from typing import Literal

from benchmarks.texts import corpus
from benchmarks.texts.drawn import continued
from benchmarks.texts.packed import read_text

Texts = Literal["english", "multilingual", "code", "batch", "sentence", "stream", "multi-stream"]
LONG, LONG_MULTILINGUAL = 1_000_000, 470_000
BATCH = 512
STREAM, MULTI_STREAM, DOCUMENT = 20_000_000, 5_000_000, 2_000
# How many characters a smoke run keeps.
SMOKE = 4_000


def read_texts(texts: Texts, *, smoke: bool) -> list[str]:
    """Read or draw the texts of one kind, such as "english" (one long text) or "stream"."""
    if texts == "code":
        return [_code()[: SMOKE if smoke else LONG]]
    if texts in ("batch", "sentence"):
        batch = corpus.read_documents("bundled")[: 16 if smoke else BATCH]
        if texts == "batch":
            return batch
        return [next(line for line in batch if 60 <= len(line) <= 100)]
    if texts == "stream":
        return _documents(continued("english.txt", SMOKE if smoke else STREAM))
    if texts == "multi-stream":
        return _documents(continued("multilingual.txt", SMOKE if smoke else MULTI_STREAM))
    if texts == "english":
        return [read_text("english.txt")[: SMOKE if smoke else LONG]]
    return [read_text("multilingual.txt")[: SMOKE if smoke else LONG_MULTILINGUAL]]


def lines_of(texts: list[str], *, smoke: bool) -> list[str]:
    """Return the lines of those texts that have several, and then texts with edge cases.

    The gate compares them one by one, and so finds the line whose ids differ.
    """
    lines = [line for text in texts if "\n" in text for line in text.split("\n")]
    edge = read_text("edge.txt").split("\n")
    return [*lines, *(edge[:8] if smoke else edge)]


def fingerprint(texts: list[str], *files: str) -> str:
    """Return a hash of the texts and of the files that they are tokenized with."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(Path(file).read_bytes())
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:16]


def _code() -> str:
    """Return the source of Python's standard library as one text."""
    parts: list[str] = []
    total = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_text(encoding="utf-8"))
        total += len(parts[-1])
        if total >= LONG:
            break
    return "".join(parts)


def _documents(text: str) -> list[str]:
    return [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
