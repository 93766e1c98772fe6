"""Real sentences for a long run: cut from the corpora that some checkouts have beside them."""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from benchmarks.texts.corpus import BUNDLED, PROSE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)]*\s+")
# Fewer words are headings, page numbers and remnants of quotations.
_LEAST_WORDS = 3


@dataclass(frozen=True, kw_only=True)
class Written:
    """The number of lines of a file of sentences, and how many repeat earlier ones."""

    num_rows: int
    num_repeated: int


def read_sentences(folder: Path | None = None) -> Iterator[str]:
    """Cut novels, then handbooks, then Tatoeba in English and in 112 languages into sentences.

    Without such corpora: the bundled text's.
    """
    folder = PROSE.parent if folder is None else folder
    if not folder.is_dir():
        for line in BUNDLED.read_text(encoding="utf-8").splitlines():
            yield from _sentences(json.loads(line)["text"])
        return
    for path in sorted(folder.glob("novels_*.txt.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for paragraph in re.split(r"\n\s*\n", file.read()):
                yield from _sentences(paragraph)
    for paragraph in _lines(folder / PROSE.name):
        yield from _sentences(paragraph)
    for column in (2, 1):
        for line in _lines(folder / "tatoeba112.tsv.xz"):
            yield line.split("\t")[column]
    for paragraph in _lines(folder / "multi_mix.txt.xz"):
        yield from _sentences(paragraph)


def write_sentences(path: Path, num_rows: int, folder: Path | None = None) -> Written:
    """Write that many sentences, one per line; none is repeated before all were written."""
    seen = set()
    with path.open("w", encoding="utf-8") as file:
        for sentence in read_sentences(folder):
            if sentence in seen:
                continue
            seen.add(sentence)
            file.write(f"{sentence}\n")
            if len(seen) == num_rows:
                break
    num_distinct = len(seen)
    with path.open("r+", encoding="utf-8") as file:
        lines = file.readlines()
        for start in range(num_distinct, num_rows, num_distinct):
            file.writelines(islice(lines, num_rows - start))
    return Written(num_rows=num_rows, num_repeated=num_rows - num_distinct)


def _lines(path: Path) -> Iterator[str]:
    if path.is_file():
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield line.strip()


def _sentences(paragraph: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
        if len(sentence.split()) >= _LEAST_WORDS:
            yield sentence
