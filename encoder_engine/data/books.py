"""Reads books from plain text files: joins lines to paragraphs, finds chapters, drops licences.

For corpora such as BookCorpus (Zhu et al. 2015), whose documents are long and in order.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from encoder_engine.inputs.readers import Inputs

__all__ = ["chapters_of", "paragraphs_of", "read_books", "without_licence"]

# The markers of Project Gutenberg, in the forms of all its years.
_START = re.compile(
    r"\*\*\*\s*START OF (?:THE|THIS) PROJECT GUTENBERG|\*END\*?\s*THE SMALL PRINT", re.IGNORECASE
)
_END = re.compile(
    r"\*\*\*\s*END OF (?:THE|THIS) PROJECT GUTENBERG|^\s*END OF (?:THE |THIS )?PROJECT GUTENBERG",
    re.IGNORECASE,
)
_NUMBER = r"(?:\d+|[IVXLC]+|[A-Z][a-z]+(?:-[A-Za-z]+)?|[A-Z]+(?:-[A-Z]+)?)"
# CHAPTER IV, Chapter 4. A title, BOOK THE FIRST, PART II.
_HEADING = re.compile(
    rf"(?:CHAPTER|Chapter|BOOK|Book|PART|Part|VOLUME|Volume)\s+(?:THE |the )?{_NUMBER}"
    r"(?:[.:\u2014-].{0,80}|\s*)"
)


def without_licence(lines: Iterable[str]) -> list[str]:
    """Return the lines between Project Gutenberg's markers; if there are none, all lines.

    Of several start markers the last one counts, because older files have two.
    """
    kept: list[str] = []
    for line in lines:
        if _START.search(line):
            kept = []
        elif _END.search(line):
            break
        else:
            kept.append(line)
    return kept


def paragraphs_of(lines: Iterable[str]) -> Iterator[str]:
    """Yield paragraphs: consecutive lines without a blank line between, joined by spaces."""
    paragraph: list[str] = []
    for line in lines:
        words = " ".join(line.split())
        if words:
            paragraph.append(words)
        elif paragraph:
            yield " ".join(paragraph)
            paragraph = []
    if paragraph:
        yield " ".join(paragraph)


def chapters_of(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """Yield chapters as lists of paragraphs; each chapter but the first begins with a heading.

    A heading is a paragraph such as ``CHAPTER IV`` or ``Chapter 4. The Storm``. Headings that
    follow each other directly, as in a table of contents, begin one chapter together.
    """
    chapter: list[str] = []
    has_text = False
    for paragraph in paragraphs:
        is_heading = _HEADING.fullmatch(paragraph) is not None
        if is_heading and has_text:
            yield chapter
            chapter, has_text = [], False
        chapter.append(paragraph)
        has_text |= not is_heading
    if chapter:
        yield chapter


def read_books(inputs: Inputs, *, chapters: bool = False) -> Iterator[str]:
    """Yield the text of each file, or of each chapter, with one paragraph per line.

    The files are .txt, compressed or not; files without text are left out. An empty file that was
    named, not found in a folder, raises :class:`RowError`.
    """
    for source in inputs.sources:
        lines = (row.text for row in replace(inputs, sources=(source,)))
        paragraphs = list(paragraphs_of(without_licence(lines)))
        for part in chapters_of(paragraphs) if chapters else [paragraphs]:
            if part:
                yield "\n".join(part)
