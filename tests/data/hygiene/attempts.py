"""Counts what a backtracking search tries, where a clock would count the machine."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Sequence

# The parser of re, for which there are no types.
parser: Any = import_module("re._parser")
sre: Any = import_module("re._constants")

CATEGORIES = {
    sre.CATEGORY_DIGIT: (str.isdecimal, True),
    sre.CATEGORY_NOT_DIGIT: (str.isdecimal, False),
    sre.CATEGORY_WORD: (lambda c: c.isalnum() or c == "_", True),
    sre.CATEGORY_NOT_WORD: (lambda c: c.isalnum() or c == "_", False),
    sre.CATEGORY_SPACE: (str.isspace, True),
    sre.CATEGORY_NOT_SPACE: (str.isspace, False),
}
Groups = dict[int, tuple[int, int]]


class TooManyAttemptsError(Exception):
    """A search has tried more than it was allowed."""


class CountedSearch:
    """Searches as ``re`` does: at each place, alternatives from left to right, most repeats first.

    An attempt is one item of the pattern (a character, a repeat, a group) at one place of the text.
    Raises :class:`TooManyAttemptsError` after ``most`` attempts.
    """

    def __init__(self, pattern: re.Pattern[str], text: str, *, most: int) -> None:
        self.num_attempts = 0
        self._text = text
        self._most = most
        self._items: Sequence[Any] = list(parser.parse(pattern.pattern, pattern.flags))

    def spans(self) -> list[tuple[int, int]]:
        """Return the matches that do not overlap, as of ``finditer``."""
        found, place = [], 0
        while place <= len(self._text):
            end = next((end for end, _ in self._match(self._items, place, {})), None)
            if end is not None:
                found.append((place, end))
            place = end if end is not None and end > place else place + 1
        return found

    def _match(
        self, items: Sequence[Any], place: int, groups: Groups
    ) -> Iterator[tuple[int, Groups]]:
        """Yield the ends of all matches of items in a row, the preferred first."""
        if not items:
            yield place, groups
            return
        kind, value = items[0]
        for end, inner in self._item(kind, value, place, groups):
            yield from self._match(items[1:], end, inner)

    def _item(
        self, kind: Any, value: Any, place: int, groups: Groups
    ) -> Iterator[tuple[int, Groups]]:
        self.num_attempts += 1
        if self.num_attempts > self._most:
            raise TooManyAttemptsError(f"more than {self._most} attempts")
        if kind is sre.BRANCH:
            for branch in value[1]:
                yield from self._match(list(branch), place, groups)
        elif kind is sre.SUBPATTERN:
            for end, inner in self._match(list(value[3]), place, groups):
                named = {} if value[0] is None else {value[0]: (place, end)}
                yield end, inner | named
        elif kind is sre.MAX_REPEAT:
            least, most, repeated = value
            yield from self._repeat(least, most, list(repeated), place, groups)
        elif kind is sre.POSSESSIVE_REPEAT:
            least, most, repeated = value
            yield from islice(self._repeat(least, most, list(repeated), place, groups), 1)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            direction, condition = value
            start = place - condition.getwidth()[0] if direction < 0 else place
            met = start >= 0 and any(True for _ in self._match(list(condition), start, groups))
            if met == (kind is sre.ASSERT):
                yield place, groups
        elif kind is sre.AT:
            assert value is sre.AT_BOUNDARY
            if self._is_word(place - 1) != self._is_word(place):
                yield place, groups
        elif kind is sre.GROUPREF:
            start, stop = groups.get(value, (0, -1))
            if start <= stop and self._text.startswith(self._text[start:stop], place):
                yield place + stop - start, groups
        elif place < len(self._text) and _holds(kind, value, self._text[place]):
            yield place + 1, groups

    def _repeat(
        self, least: int, most: int, items: Sequence[Any], place: int, groups: Groups
    ) -> Iterator[tuple[int, Groups]]:
        if most:
            for end, inner in self._match(items, place, groups):
                yield from self._repeat(max(least - 1, 0), most - 1, items, end, inner)
        if not least:
            yield place, groups

    def _is_word(self, place: int) -> bool:
        inside = 0 <= place < len(self._text)
        return inside and _holds(sre.CATEGORY, sre.CATEGORY_WORD, self._text[place])


def _holds(kind: Any, value: Any, character: str) -> bool:
    """Return whether a character is one that an item of a pattern takes."""
    if kind is sre.IN:
        negated = value[0][0] is sre.NEGATE
        found = any(_holds(one, inner, character) for one, inner in value[negated:])
        return found != negated
    if kind is sre.CATEGORY:
        test, wanted = CATEGORIES[value]
        return bool(test(character)) == wanted
    if kind is sre.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    assert kind is sre.LITERAL, kind
    return bool(value == ord(character))
