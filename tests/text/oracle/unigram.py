"""The readable oracle of a tokenizer.json's Unigram model: normalizers, words, the best path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from encoder_engine.text.spec.unigram import (
    CharsmapStep,
    LowercaseStep,
    PrependStep,
    ReplaceStep,
    StripAccentsStep,
    StripStep,
    UnicodeFormStep,
)
from tests.text.oracle.charsmap import ReferenceCharsmap, graphemes
from tests.text.oracle.text import (
    ANY_MARK,
    Char,
    Token,
    combining,
    compose,
    decompose,
    decompose_compatibly,
    flags,
    is_space,
    lowercase,
    reorder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.text.spec.unigram import NormalizerStep, UnigramSpec

__all__ = ["ReferenceUnigram"]

UNKNOWN_PENALTY = 10.0
# A new character and what it does to the old ones: above 0 it is extra, else it takes the place of
# the next and of so many behind it.
Change = tuple[str, int]


def transform(old: list[Char], new: list[Change]) -> list[Char]:
    """Align new characters with old ones, by position alone, as the library does."""
    out: list[Char] = []
    taken = 0
    for code, change in new:
        out.append(Char(code, old[taken - 1 if change > 0 else taken].source))
        taken += 0 if change > 0 else 1 - change
    return out


def unicode_form(text: list[Char], form: str) -> list[Char]:
    """Bring text into a normalization form."""
    split = decompose_compatibly if "K" in form else decompose
    parts = [(code, int(i > 0)) for char in text for i, code in enumerate(split(char.code))]
    parts = reorder(parts)
    return transform(text, recompose(parts) if form.endswith("C") else parts)


def recompose(parts: list[Change]) -> list[Change]:
    """Compose what can be; a composed character takes the places of its parts."""
    out: list[Change] = []
    base: int | None = None  # the starter that may still compose
    last = 0  # combining class of the character before, of those that did not compose
    for code, change in parts:
        order = combining(code)
        blocked = base is None or (base != len(out) - 1 and last >= order)
        composed = None if base is None or blocked else compose(out[base][0], code)
        if base is not None and composed is not None:
            out[base] = (composed, out[base][1] + change - 1)
            continue
        out.append((code, change))
        last = order
        if order == 0:
            base = len(out) - 1
    return out


def apply_charsmap(text: list[Char], charsmap: ReferenceCharsmap) -> list[Char]:
    """Replace graphemes of less than six bytes, and characters of the others."""
    new: list[Change] = []
    for cluster in graphemes("".join(char.code for char in text)):
        short = len(cluster.encode()) < 6
        whole = charsmap.shortest(cluster) if short else None
        for part in [cluster] if whole is not None else cluster:
            replacement = charsmap.shortest(part)
            if replacement is None:
                new.append((part, 0))
                continue
            extra = len(replacement) - len(part)
            new += [(code, int(i >= len(part))) for i, code in enumerate(replacement)]
            if extra < 0 and new:
                new[-1] = (new[-1][0], new[-1][1] + extra)
    return transform(text, new)


def replace(text: list[Char], step: ReplaceStep) -> list[Char]:
    """Replace each match; its last character is the source of all that comes in its place."""
    pattern = step.pattern if step.regex else re.escape(step.pattern)
    if step.regex:  # in Python \s takes in four control characters more
        pattern = pattern.replace(r"\s", r"[^\S\x1c-\x1f]")
    codes = "".join(char.code for char in text)
    out: list[Char] = []
    done = 0
    for match in re.finditer(pattern, codes):
        out += text[done : match.start()]
        out += [Char(code, text[match.end() - 1].source) for code in step.content]
        done = match.end()
    return out + text[done:]


def strip(text: list[Char], step: StripStep) -> list[Char]:
    """Drop white space at the ends."""
    start, stop = 0, len(text)
    while step.left and start < stop and is_space(text[start].code):
        start += 1
    while step.right and start < stop and is_space(text[stop - 1].code):
        stop -= 1
    return text[start:stop]


def apply_step(text: list[Char], step: NormalizerStep) -> list[Char]:
    """Apply one normalizer."""
    if isinstance(step, CharsmapStep):
        return apply_charsmap(text, ReferenceCharsmap.read(step.charsmap))
    if isinstance(step, ReplaceStep):
        return replace(text, step)
    if isinstance(step, UnicodeFormStep):
        return unicode_form(text, step.form)
    if isinstance(step, StripAccentsStep):
        return [char for char in text if not flags(char.code) & ANY_MARK]
    if isinstance(step, LowercaseStep):
        return lowercase(text)
    if isinstance(step, StripStep):
        return strip(text, step)
    assert isinstance(step, PrependStep)
    return [Char(code, text[0].source) for code in step.prefix] + text if text else text


class ReferenceUnigram:
    """Normalizes, splits and finds the best path by the specification alone."""

    def __init__(self, model: UnigramSpec) -> None:
        assert model.unk_id is not None
        self.model = model
        self.unknown_id = model.unk_id
        self.unknown_score = min(model.scores) - UNKNOWN_PENALTY
        self.longest = max(map(len, model.pieces))

    def normalize(self, text: list[Char]) -> list[Char]:
        """Apply the normalizers to a stretch of text."""
        for step in self.model.normalizer:
            text = apply_step(text, step)
        return text

    def words(self, text: list[Char]) -> Iterator[list[Char]]:
        """Cut normalized text into words."""
        parts: list[list[Char]] = [[]]
        for char in text:
            if self.model.whitespace_split and is_space(char.code):
                parts.append([])
            else:
                parts[-1].append(char)
        for part in parts:
            if part:
                yield from self._metaspace(part)

    def _metaspace(self, part: list[Char]) -> Iterator[list[Char]]:
        """Replace spaces, set one in front, and split before each."""
        spec = self.model.metaspace
        if spec is None:
            yield part
            return
        mark = spec.replacement
        part = [Char(mark, c.source) if c.code == " " else c for c in part]
        wanted = spec.prepend_scheme == "always" or (
            spec.prepend_scheme == "first" and part[0].source == 0
        )
        if wanted and part[0].code != mark:
            part = [Char(mark, part[0].source), *part]
        word: list[Char] = []
        for char in part:
            if spec.split and char.code == mark and word:
                yield word
                word = []
            word.append(char)
        yield word

    def best_path(self, text: str) -> list[tuple[int, int]]:
        """Find the best path: its ends and ids; of equal ones the first that was found."""
        best: list[tuple[float, int, int] | None] = [(0.0, 0, 0)] + [None] * len(text)
        for start in range(len(text)):
            here = best[start]
            assert here is not None
            edges: list[tuple[int, int, float]] = []
            for stop in range(start + 1, min(start + self.longest, len(text)) + 1):
                number = self.model.vocab.get(text[start:stop])
                if number is not None:
                    edges.append((stop, number, self.model.scores[number]))
            if not edges or edges[0][0] != start + 1:
                edges.append((start + 1, self.unknown_id, self.unknown_score))
            for stop, number, score in edges:
                known = best[stop]
                if known is None or score + here[0] > known[0]:
                    best[stop] = (score + here[0], start, number)
        path: list[tuple[int, int]] = []
        stop = len(text)
        while stop > 0:
            node = best[stop]
            assert node is not None
            path.append((stop, node[2]))
            stop = node[1]
        return path[::-1]

    def pieces(self, word: list[Char], index: int) -> list[Token]:
        """Cut a word along its best path; unknown pieces in a row become one."""
        text = "".join(char.code for char in word)
        ends: list[int] = []
        was_unknown = False
        for stop, number in self.best_path(text):
            unknown = number == self.unknown_id
            if unknown and was_unknown:
                ends.pop()
            ends.append(stop)
            was_unknown = unknown
        out: list[Token] = []
        start = 0
        for stop in ends:
            span = word[start].source, word[stop - 1].source + 1
            numbers = self._numbers(text[start:stop])
            out += [Token(number, *span, index) for number in numbers]
            start = stop
        return out

    def _numbers(self, piece: str) -> list[int]:
        """Give the id of a piece, or of the bytes of an unknown one."""
        known = self.model.vocab.get(piece)
        if known is not None:
            return [known]
        if self.model.byte_fallback:
            found = [self.model.vocab.get(f"<0x{byte:02X}>") for byte in piece.encode()]
            numbers = [number for number in found if number is not None]
            if len(numbers) == len(found):
                return numbers
        return [self.unknown_id]
