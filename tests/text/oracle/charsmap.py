"""The readable oracle of SentencePiece's compiled rules, and of grapheme clusters."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from tests.text.oracle.text import grapheme_class

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ReferenceCharsmap", "graphemes"]

# Longer than any key: a guard against tries that lead in a circle.
MAX_KEY = 256


class ReferenceCharsmap:
    """The rules, read out of their trie."""

    def __init__(self, charsmap: bytes) -> None:
        (size,) = struct.unpack_from("<I", charsmap)
        units = struct.unpack_from(f"<{size // 4}I", charsmap, 4)
        replacements = charsmap[4 + size :]
        self.rules: dict[bytes, str] = {}
        todo = [(b"", _base(0, units[0]))]
        while todo:
            key, base = todo.pop()
            for byte in range(1, 256):
                place = base ^ byte
                if len(key) == MAX_KEY or place >= len(units):
                    continue
                unit = units[place]
                if unit & 0x800000FF != byte:
                    continue
                below = _base(place, unit)
                longer = key + bytes([byte])
                if unit >> 8 & 1:
                    start = units[below] & 0x7FFFFFFF
                    replacement = replacements[start : replacements.index(0, start)]
                    self.rules[longer] = replacement.decode()
                todo.append((longer, below))

    @classmethod
    @cache
    def read(cls, charsmap: bytes) -> ReferenceCharsmap:
        """Read the rules once."""
        return cls(charsmap)

    def shortest(self, text: str) -> str | None:
        """Give what the shortest rule that fits the beginning makes of it."""
        key = text.encode()
        ends = range(1, len(key) + 1)
        return next((self.rules[key[:end]] for end in ends if key[:end] in self.rules), None)

    def longest(self, text: str) -> tuple[int, str] | None:
        """Give the length and the replacement of the longest rule that fits the beginning."""
        for stop in range(min(len(text), MAX_KEY), 0, -1):
            replacement = self.rules.get(text[:stop].encode())
            if replacement is not None:
                return stop, replacement
        return None


def _base(place: int, unit: int) -> int:
    return place ^ (unit >> 10 << ((unit & 1 << 9) >> 6))


HANGUL = {
    "hangul_l": ("hangul_l", "hangul_v", "hangul_lv", "hangul_lvt"),
    "hangul_v": ("hangul_v", "hangul_t"),
    "hangul_lv": ("hangul_v", "hangul_t"),
    "hangul_t": ("hangul_t",),
    "hangul_lvt": ("hangul_t",),
}
CONTROLS = ("control", "carriage_return", "line_feed")
EXTENDING = ("extend", "linker", "non_joiner")


def graphemes(text: str) -> Iterator[str]:
    """Cut a text into extended grapheme clusters (Unicode Standard Annex 29)."""
    start = 0
    for at in range(1, len(text)):
        if _breaks(text, at):
            yield text[start:at]
            start = at
    if text:
        yield text[start:]


def _breaks(text: str, at: int) -> bool:
    before, after = grapheme_class(text[at - 1]), grapheme_class(text[at])
    if before in CONTROLS or after in CONTROLS:
        return (before, after) != ("carriage_return", "line_feed")
    if after in HANGUL.get(before, ()):
        return False
    if after in (*EXTENDING, "joiner", "spacing") or before == "prepend":
        return False
    if after == "consonant" and _is_conjunct(text[:at]):
        return False
    if after == "pictograph" and before == "joiner":
        base = at - 2
        while base >= 0 and grapheme_class(text[base]) in EXTENDING:
            base -= 1
        return base < 0 or grapheme_class(text[base]) != "pictograph"
    if before == after == "regional":
        run = 1
        while run < at and grapheme_class(text[at - 1 - run]) == "regional":
            run += 1
        return run % 2 == 0
    return True


def _is_conjunct(before: str) -> bool:
    """Whether a consonant and at least one linker lie just behind, with extenders between them."""
    linked = False
    for code in reversed(before):
        kind = grapheme_class(code)
        if kind == "consonant":
            return linked
        if kind not in ("extend", "linker", "joiner"):
            return False
        linked |= kind == "linker"
    return False
