"""The readable oracle: tokenizing step by step, in plain Python, for the tests.

It shares no code with the C++ encoder and none with the libraries it is compared with. A text is a
list of characters, each with the index of the original character that it stands for; every step
makes a new list. Nothing here is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from encoder_engine.text.spec.tokenizer import WordPieceSpec
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec
from tests.text.oracle.sentencepiece import ReferenceSentencePiece
from tests.text.oracle.text import WORD, Char, Token, flags, is_space
from tests.text.oracle.unigram import ReferenceUnigram
from tests.text.oracle.wordpiece import ReferenceWordPiece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.text.spec.tokenizer import AddedTokenSpec, ModelSpec, TokenizerSpec
    from tests.text.oracle.text import ReferenceModel

__all__ = ["ReferenceRow", "ReferenceTokenizer"]


@dataclass(frozen=True)
class ReferenceRow:
    """One row: ids, segments, offsets, words and which tokens the template put there."""

    ids: list[int]
    type_ids: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    special: list[int]


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


def build_model(model: ModelSpec) -> ReferenceModel:
    """Choose the oracle of a model by its kind."""
    if isinstance(model, WordPieceSpec):
        return ReferenceWordPiece(model)
    if isinstance(model, UnigramSpec):
        return ReferenceUnigram(model)
    raise TypeError(f"there is no oracle of {type(model).__name__}")


class ReferenceTokenizer:
    """Encodes by the specification alone."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self.spec = spec
        if isinstance(spec.model, SentencePieceSpec):
            self.tokenize = ReferenceSentencePiece(spec.model).tokens
            return
        self.model = build_model(spec.model)
        self.tokenize = self._tokenize
        self._raw = [(t.content, t) for t in spec.added_tokens if not t.normalized]
        self._normalized = [
            ("".join(c.code for c in self.model.normalize(_chars(t.content))), t)
            for t in spec.added_tokens
            if t.normalized
        ]

    def _tokenize(self, text: str) -> list[Token]:
        """Turn a text into tokens, without the template."""
        words: list[tuple[list[Char], AddedTokenSpec | None]] = []
        for plain, added in find_added(_chars(text), self._raw):
            if added is not None:
                words.append((plain, added))
                continue
            for part, inner in find_added(self.model.normalize(plain), self._normalized):
                if inner is not None:
                    words.append((part, inner))
                else:
                    words += [(word, None) for word in self.model.words(part)]
        out: list[Token] = []
        for index, (word, added) in enumerate(words):
            if added is not None:
                out.append(Token(added.id, word[0].source, word[-1].source + 1, index))
            else:
                out += self.model.pieces(word, index)
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
