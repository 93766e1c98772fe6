"""The readable oracle: WordPiece step by step, in plain Python, for the tests.

It shares no code with the C++ encoder and none with Hugging Face tokenizers. A text is a list of
characters, each with the index of the original character that it stands for; every step makes a
new list. Nothing here is fast.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.text import unicode_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from encoder_engine.text.spec import AddedTokenSpec, TokenizerSpec

__all__ = ["ReferenceRow", "ReferenceTokenizer", "Token"]

WHITESPACE, REMOVED, PUNCTUATION, MARK, WORD = 1, 2, 4, 8, 16
# BERT's table, with the gap between 2B820 and 2B91F that the library has.
CJK = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


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


@dataclass(frozen=True)
class ReferenceRow:
    """One row: ids, segments, offsets, words and which tokens the template put there."""

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    special: list[int]


def _runs(text: str, base: int) -> tuple[list[int], list[int]]:
    items = [item.split(":") for item in text.split()]
    return [int(first, 16) for first, _ in items], [int(value, base) for _, value in items]


_PROPERTIES = _runs(unicode_ranges.PROPERTIES, 16)
_COMBINING = _runs(unicode_ranges.COMBINING, 10)


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


@cache
def _lowercase_table() -> dict[str, str]:
    table = {"\u0130": "i\u0307"}
    for item in unicode_ranges.LOWERCASE.split():
        first, last, step, distance = item.split(":")
        for code in range(int(first, 16), int(last, 16) + 1, int(step)):
            table[chr(code)] = chr(code + int(distance))
    return table


@cache
def _decomposable() -> frozenset[int]:
    out: set[int] = set()
    for item in unicode_ranges.DECOMPOSABLE.split():
        first, _, last = item.partition("-")
        out.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(out)


def decompose(code: str) -> str:
    """Give the canonical decomposition, which Unicode promises never to change."""
    if ord(code) in _decomposable() or "\uac00" <= code <= "\ud7a3":
        return unicodedata.normalize("NFD", code)
    return code


def is_cjk(code: str) -> bool:
    """Whether BERT sets spaces around a character."""
    return any(first <= ord(code) <= last for first, last in CJK)


def clean(text: list[Char]) -> list[Char]:
    """Drop control characters and make every white space a space."""
    kept = [char for char in text if not flags(char.code) & REMOVED]
    return [Char(" " if flags(c.code) & WHITESPACE else c.code, c.source) for c in kept]


def space_cjk(text: list[Char]) -> list[Char]:
    """Set spaces around ideographs."""
    out: list[Char] = []
    for char in text:
        space = [Char(" ", char.source)] if is_cjk(char.code) else []
        out += [*space, char, *space]
    return out


def strip_accents(text: list[Char]) -> list[Char]:
    """Decompose, bring marks into canonical order, and drop the non-spacing ones.

    Sorting moves characters but the library aligns by position: a character that is not an extra
    part of a decomposition takes the next source, an extra part shares the one before it.
    """
    parts = [(code, i > 0) for char in text for i, code in enumerate(decompose(char.code))]
    ordered: list[tuple[str, bool]] = []
    pending: list[tuple[str, bool]] = []
    for part in parts:
        if combining(part[0]) == 0:
            ordered += [*sorted(pending, key=lambda p: combining(p[0])), part]
            pending = []
        else:
            pending.append(part)
    ordered += sorted(pending, key=lambda p: combining(p[0]))
    out: list[Char] = []
    taken = 0
    for code, extra in ordered:
        taken += not extra
        out.append(Char(code, text[taken - 1].source))
    return [char for char in out if not flags(char.code) & MARK]


def lowercase(text: list[Char]) -> list[Char]:
    """Lower-case each character by itself."""
    table = _lowercase_table()
    return [Char(low, c.source) for c in text for low in table.get(c.code, c.code)]


def split_words(text: list[Char]) -> Iterator[list[Char]]:
    """Split on white space, and make each punctuation mark a word."""
    word: list[Char] = []
    for char in text:
        if flags(char.code) & (WHITESPACE | PUNCTUATION):
            if word:
                yield word
            word = []
            if not flags(char.code) & WHITESPACE:
                yield [char]
        else:
            word.append(char)
    if word:
        yield word


def slices(length: int, keep: int, stride: int, *, left: bool) -> list[tuple[int, int]]:
    """Cover ``length`` tokens by slices of ``keep``, the row proper first."""
    if length <= keep:
        return [(0, length)]
    out: list[tuple[int, int]] = []
    for done in range(0, length, keep - stride):
        reach = min(done + keep, length)
        out.append((length - reach, length - done) if left else (done, reach))
        if reach == length:
            break
    return out


def share_room(strategy: str, room: int, first: int, second: int | None) -> tuple[int, int]:
    """Say how many tokens of each text stay; ``second`` is ``None`` without a pair."""
    total = first + (second or 0)
    if total <= room:
        return first, second or 0
    if room == 0:
        return 0, 0
    if strategy == "longest_first":
        if second is None:
            return room, 0
        short, long = sorted((first, second))
        long = short if short > room else max(short, room - short)
        if short + long > room:
            short, long = room // 2, room // 2 + room % 2
        return (long, short) if first > second else (short, long)
    over = total - room
    kept = first - over if strategy == "only_first" else (second or 0) - over
    if kept <= 0:
        raise ValueError("the text to cut is too short")
    return (kept, second or 0) if strategy == "only_first" else (first, kept)


class ReferenceTokenizer:
    """Encodes by the specification alone."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self.spec = spec
        self._raw = [(t.content, t) for t in spec.added_tokens if not t.normalized]
        self._normalized = [
            ("".join(c.code for c in self.normalize(_chars(t.content))), t)
            for t in spec.added_tokens
            if t.normalized
        ]

    def normalize(self, text: list[Char]) -> list[Char]:
        """Apply the normalizer to a stretch of text."""
        normalizer = self.spec.model.normalizer
        if normalizer.clean_text:
            text = clean(text)
        if normalizer.handle_chinese_chars:
            text = space_cjk(text)
        if normalizer.strips_accents:
            text = strip_accents(text)
        if normalizer.lowercase:
            text = lowercase(text)
        return text

    def tokenize(self, text: str) -> list[Token]:
        """Turn a text into tokens, without the template."""
        words: list[tuple[list[Char], AddedTokenSpec | None]] = []
        for plain, added in find_added(_chars(text), self._raw):
            if added is not None:
                words.append((plain, added))
                continue
            for part, inner in find_added(self.normalize(plain), self._normalized):
                if inner is not None:
                    words.append((part, inner))
                else:
                    words += [(word, None) for word in split_words(part)]
        out: list[Token] = []
        for index, (word, added) in enumerate(words):
            if added is not None:
                out.append(Token(added.id, word[0].source, word[-1].source + 1, index))
            else:
                out += self._pieces(word, index)
        return out

    def _pieces(self, word: list[Char], index: int) -> list[Token]:
        """Cut a word greedily into the longest pieces, or give the unknown token."""
        model = self.spec.model
        unknown = [Token(model.vocab[model.unk_token], word[0].source, word[-1].source + 1, index)]
        if len(word) > model.max_input_chars_per_word:
            return unknown
        text = "".join(char.code for char in word)
        out: list[Token] = []
        start = 0
        while start < len(word):
            prefix = model.continuing_subword_prefix if start else ""
            ends = range(len(word), start, -1)
            stop = next((end for end in ends if prefix + text[start:end] in model.vocab), None)
            if stop is None:
                return unknown
            number = model.vocab[prefix + text[start:stop]]
            out.append(Token(number, word[start].source, word[stop - 1].source + 1, index))
            start = stop
        return out

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        strategy: str = "longest_first",
        stride: int = 0,
        left: bool = False,
    ) -> list[ReferenceRow]:
        """Give the row of a text or pair, and after it its overflow rows."""
        template = self.spec.single if pair is None else self.spec.pair
        if not add_special_tokens:
            template = tuple(piece for piece in template if piece.kind != "special")
        tokens: dict[str, list[Token]] = {
            "first": self.tokenize(text),
            "second": self.tokenize(pair or ""),
        }
        first, second = len(tokens["first"]), len(tokens["second"])
        kept = first, second
        if max_length is not None:
            room = max_length - sum(len(piece.ids) for piece in template)
            kept = share_room(strategy, room, first, None if pair is None else second)
        ranges = {
            "first": slices(first, kept[0], stride, left=left),
            "second": slices(second, kept[1], stride, left=left),
        }
        texts = [piece.kind for piece in template if piece.kind != "special"]
        lead, follow = (texts[0], texts[1]) if pair is not None else ("first", "second")
        combos = [(ranges[lead][0], ranges[follow][0])]
        combos += [(a, b) for a in ranges[lead][1:] for b in ranges[follow]]
        combos += [(ranges[lead][0], b) for b in ranges[follow][1:]]
        rows: list[ReferenceRow] = []
        for a, b in combos:
            cut: dict[str, list[Token]] = {
                lead: tokens[lead][slice(*a)],
                follow: tokens[follow][slice(*b)],
            }
            row = ReferenceRow([], [], [], [], [])
            for piece in template:
                part: Sequence[Token] = cut.get(piece.kind, ())
                fixed = [Token(number, 0, 0, -1) for number in piece.ids]
                for token in part or fixed:
                    row.ids.append(token.id)
                    row.type_ids.append(piece.type_id)
                    row.offsets.append((token.start, token.stop))
                    row.word_ids.append(None if token.word < 0 else token.word)
                    row.special.append(int(piece.kind == "special"))
            rows.append(row)
        return rows


def _chars(text: str) -> list[Char]:
    return [Char(code, index) for index, code in enumerate(text)]


def find_added(
    text: list[Char], patterns: list[tuple[str, AddedTokenSpec]]
) -> Iterator[tuple[list[Char], AddedTokenSpec | None]]:
    """Split a text at the added tokens in it: leftmost first, the longest of those.

    A match that its ``single_word`` refuses still uses its characters up for the search.
    """
    codes = "".join(char.code for char in text)
    is_space: Callable[[str], bool] = lambda code: bool(flags(code) & WHITESPACE)  # noqa: E731
    plain_from = at = 0
    while at < len(codes):
        here = [(p, t) for p, t in patterns if codes.startswith(p, at)]
        if not here:
            at += 1
            continue
        pattern, token = max(here, key=lambda item: len(item[0]))
        start, stop = at, at + len(pattern)
        at = stop
        if token.single_word:
            around = codes[start - 1 : start] + codes[stop : stop + 1]
            if any(flags(code) & WORD for code in around):
                continue
        while token.lstrip and start > plain_from and is_space(codes[start - 1]):
            start -= 1
        while token.rstrip and stop < len(codes) and is_space(codes[stop]):
            stop += 1
        start = max(start, plain_from) if token.lstrip else start
        if start >= stop:
            continue  # the match before took in all of it
        if plain_from < start:
            yield text[plain_from:start], None
        yield text[start:stop], token
        plain_from = stop
    if plain_from != len(codes):
        yield text[plain_from:], None
