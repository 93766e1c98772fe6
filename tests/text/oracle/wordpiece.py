"""The readable oracle of WordPiece: BERT's normalizer, its words, the greedy match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.text.oracle.text import (
    MARK,
    PUNCTUATION,
    REMOVED,
    WHITESPACE,
    Char,
    Token,
    decompose,
    flags,
    lowercase,
    reorder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.text.spec.tokenizer import WordPieceSpec

__all__ = ["ReferenceWordPiece"]

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
    parts = [(code, int(i > 0)) for char in text for i, code in enumerate(decompose(char.code))]
    out: list[Char] = []
    taken = 0
    for code, extra in reorder(parts):
        taken += not extra
        out.append(Char(code, text[taken - 1].source))
    return [char for char in out if not flags(char.code) & MARK]


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


class ReferenceWordPiece:
    """Normalizes, splits and matches by the specification alone."""

    def __init__(self, model: WordPieceSpec) -> None:
        self.model = model

    def normalize(self, text: list[Char]) -> list[Char]:
        """Apply the normalizer to a stretch of text."""
        normalizer = self.model.normalizer
        if normalizer.clean_text:
            text = clean(text)
        if normalizer.handle_chinese_chars:
            text = space_cjk(text)
        if normalizer.strips_accents:
            text = strip_accents(text)
        if normalizer.lowercase:
            text = lowercase(text)
        return text

    def words(self, text: list[Char]) -> Iterator[list[Char]]:
        """Cut normalized text into words."""
        return split_words(text)

    def pieces(self, word: list[Char], index: int) -> list[Token]:
        """Cut a word greedily into the longest pieces, or give the unknown token."""
        model = self.model
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
