"""Finds salient spans of a text: names and dates, as REALM masks them (Guu et al. 2020).

The tagger works by rules. A name is a run of capitalised words, with small words such as ``of`` and
initials inside; a single capitalised word at the start of a sentence is not a name. A date is a
year, or a day, month and year in any usual order. Spans from a better tagger may be given instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Span", "clip_spans", "find_salient", "mark_tokens", "merge_spans"]

Span = tuple[int, int]

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:1\d{3}|20\d{2})"
_DATE = re.compile(
    rf"\b(?:{_DAY}(?:\s+of)?\s+{_MONTH}(?:,?\s+{_YEAR})?"
    rf"|{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?(?!\w)"
    rf"|{_MONTH}\s+{_YEAR}"
    r"|\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
    rf"|{_YEAR}s?)\b"
)
# Capital letters of all scripts that have them; re has no class of them.
_UPPER = "".join(
    letter
    for letter in map(chr, range(0x10000))
    if letter.isalpha() and (letter.isupper() or letter.istitle())
)
# A capitalised word, or an initial: Ludwig, O'Neill, Rolls-Royce, J.; or a word like iPhone.
_CAPITAL = (
    rf"(?:(?:[a-z](?=[A-Z][a-z]{{2}}))?[{_UPPER}][\w'\u2019-]*[^\W_]|[{_UPPER}]\.|[{_UPPER}])"
)
_INNER = r"(?:of|the|de|la|del|von|van|der|and|&)"
# Within a word no name begins.
_NAME = re.compile(rf"(?<![^\W_]){_CAPITAL}(?:\s+(?:{_INNER}\s+){{0,2}}{_CAPITAL})*")
# Words that are capitalised at the start of a clause, and are not names.
_NO_NAMES = frozenset(
    re.findall(
        r"\S+",
        "A An And As At But By For From He Her His How I I'll I'm I've If In It Its My No Not Of "
        "On Or Our She So That The Their Then There These They This Those To We What When Where "
        "Which Who Why With Yes You Your",
    )
)


def find_salient(sentence: str) -> list[Span]:
    """Return the names and dates of a sentence, as ascending ranges of characters."""
    found = [match.span() for match in _DATE.finditer(sentence)]
    for match in _NAME.finditer(sentence):
        start, end = match.span()
        words = list(re.finditer(r"\S+", sentence[start:end]))
        while words and words[0].group() in _NO_NAMES:
            words.pop(0)
        if not words:
            continue
        start += words[0].start()
        opens = not sentence[:start].strip("\"'([\u201c\u2018\u00ab ")
        if len(words) == 1 and (opens or words[0].group() in _NO_NAMES):
            continue
        found.append((start, end))
    return merge_spans(found)


def merge_spans(spans: list[Span]) -> list[Span]:
    """Return the spans sorted, overlapping ones merged; empty spans are left out."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def clip_spans(spans: list[Span], sentences: list[Span]) -> list[Span]:
    """Split spans at the borders of sentences, and drop what lies outside of all sentences.

    All ranges are characters of the text.
    """
    return [
        (max(start, begin), min(stop, end))
        for begin, end in sentences
        for start, stop in spans
        if start < end and stop > begin
    ]


def mark_tokens(offsets: npt.NDArray[np.integer[Any]], spans: list[Span]) -> npt.NDArray[np.uint8]:
    """Return each token's salient mark, uint8 [T]: 1 for a span's first, 2 for its others, else 0.

    ``offsets`` [T, 2]: the characters of each token. A token in two spans counts for the first
    span.
    """
    marks = np.zeros(len(offsets), np.uint8)
    for start, end in spans:
        inside = (offsets[:, 0] < end) & (offsets[:, 1] > start) & (marks == 0)
        places = np.flatnonzero(inside)
        marks[places] = 2
        marks[places[:1]] = 1
    return marks
