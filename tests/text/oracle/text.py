"""What the readable oracles share: characters with their sources, Unicode facts, tokens."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tests.text.oracle import unicode_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    *("Char", "ReferenceModel", "Token", "combining", "compose"),
    *("decompose", "decompose_compatibly", "flags", "grapheme_class", "is_space", "lowercase"),
    "reorder",
]

WHITESPACE, REMOVED, PUNCTUATION, MARK, WORD, ANY_MARK = 1, 2, 4, 8, 16, 32


class Char(NamedTuple):
    """A character of the text under way, and the original character it stands for."""

    code: str
    source: int


class Token(NamedTuple):
    """A token: its id, the original characters ``[start, stop)``, and its word."""

    id: int
    start: int
    stop: int
    word: int


class ReferenceModel(Protocol):
    """What stands between the added tokens of a text and its rows."""

    def normalize(self, text: list[Char]) -> list[Char]:
        """Apply the normalizer to a stretch of text."""

    def words(self, text: list[Char]) -> Iterator[list[Char]]:
        """Cut normalized text into words."""

    def pieces(self, word: list[Char], index: int) -> list[Token]:
        """Cut word number ``index`` into tokens."""


def _runs(text: str, base: int) -> tuple[list[int], list[int]]:
    items = [item.split(":") for item in text.split()]
    return [int(first, 16) for first, _ in items], [int(value, base) for _, value in items]


_PROPERTIES = _runs(unicode_ranges.PROPERTIES, 16)
_COMBINING = _runs(unicode_ranges.COMBINING, 10)


_GRAPHEME = _runs(unicode_ranges.GRAPHEME, 10)
GRAPHEME_CLASSES = (
    *("other", "control", "carriage_return", "line_feed", "extend", "joiner", "spacing", "prepend"),
    *("hangul_l", "hangul_v", "hangul_t", "regional", "pictograph", "consonant", "linker"),
    "non_joiner",
)


@cache
def flags(code: str) -> int:
    """Give a character's properties."""
    starts, values = _PROPERTIES
    return values[bisect_right(starts, ord(code)) - 1]


@cache
def combining(code: str) -> int:
    """Give a character's canonical combining class."""
    starts, values = _COMBINING
    return values[bisect_right(starts, ord(code)) - 1]


def combining_codes() -> list[int]:
    """List the code points whose canonical combining class is not 0."""
    starts, values = _COMBINING
    spans = zip(starts, [*starts[1:], 0x110000], values, strict=True)
    return [code for start, stop, value in spans if value for code in range(start, stop)]


@cache
def _lowercase_table() -> dict[str, str]:
    table = {"\u0130": "i\u0307"}
    for item in unicode_ranges.LOWERCASE.split():
        first, last, step, distance = item.split(":")
        for code in range(int(first, 16), int(last, 16) + 1, int(step)):
            table[chr(code)] = chr(code + int(distance))
    return table


@cache
def _members(ranges: str) -> frozenset[int]:
    out: set[int] = set()
    for item in ranges.split():
        first, _, last = item.partition("-")
        out.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(out)


def decompose(code: str) -> str:
    """Give the canonical decomposition, which Unicode promises never to change."""
    if ord(code) in _members(unicode_ranges.DECOMPOSABLE) or "\uac00" <= code <= "\ud7a3":
        return unicodedata.normalize("NFD", code)
    return code


def decompose_compatibly(code: str) -> str:
    """Give the compatibility decomposition."""
    if ord(code) in _members(unicode_ranges.COMPATIBLE):
        return unicodedata.normalize("NFKD", code)
    return decompose(code)


@cache
def compose(first: str, second: str) -> str | None:
    """Give the character that two compose to."""
    composed = unicodedata.normalize("NFC", first + second)
    one = len(composed) == 1 and len(unicodedata.normalize("NFD", composed)) > 1
    return composed if one and composed != "\U00011938" else None


@cache
def grapheme_class(code: str) -> str:
    """Give the class that decides where grapheme clusters end."""
    starts, values = _GRAPHEME
    number = ord(code) - 0xAC00
    if 0 <= number < 11172:
        return "hangul_lv" if number % 28 == 0 else "hangul_lvt"
    return GRAPHEME_CLASSES[values[bisect_right(starts, ord(code)) - 1]]


def is_space(code: str) -> bool:
    """Whether a character is white space."""
    return bool(flags(code) & WHITESPACE)


def reorder(parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Bring combining characters into canonical order."""
    ordered: list[tuple[str, int]] = []
    pending: list[tuple[str, int]] = []
    for part in parts:
        if combining(part[0]) == 0:
            ordered += [*sorted(pending, key=lambda p: combining(p[0])), part]
            pending = []
        else:
            pending.append(part)
    return ordered + sorted(pending, key=lambda p: combining(p[0]))


def lowercase(text: list[Char]) -> list[Char]:
    """Lower-case each character by itself."""
    table = _lowercase_table()
    return [Char(low, c.source) for c in text for low in table.get(c.code, c.code)]
