"""The readable oracle of a bare SentencePiece model: rules, white space, the best path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.text.oracle.charsmap import ReferenceCharsmap
from tests.text.oracle.text import Char, Token

if TYPE_CHECKING:
    from encoder_engine.text.spec.unigram import SentencePieceSpec

__all__ = ["ReferenceSentencePiece"]

MARK = "\u2581"
UNKNOWN_PENALTY = np.float32(10.0)
MOST_SUM = np.float32(100_000.0)


class ReferenceSentencePiece:
    """Normalizes a text and finds its pieces by the specification alone."""

    def __init__(self, model: SentencePieceSpec) -> None:
        self.model = model
        self.mark = MARK if model.escape_whitespaces else " "
        self.symbols = [p for p, k in zip(model.pieces, model.kinds, strict=True) if _is_symbol(k)]
        self.rules = ReferenceCharsmap.read(model.charsmap) if model.charsmap else None
        scores = np.asarray(model.scores, np.float32)
        normal = [scores[i] for i, kind in enumerate(model.kinds) if kind == "normal"]
        self.unknown_score = min([np.finfo(np.float32).max, *normal]) - UNKNOWN_PENALTY
        self.scores: dict[str, np.float32] = {}
        for piece, kind, score in zip(model.pieces, model.kinds, scores, strict=True):
            if kind == "normal":
                self.scores[piece] = score
            elif _is_symbol(kind):
                self.scores[piece] = np.float32(0.1 * (len(piece.encode()) - 1))
        self.longest = max(map(len, self.scores))

    def _step(self, text: str) -> tuple[int, str]:
        """Give how many characters the next rule takes, and what it makes of them."""
        symbol = max((s for s in self.symbols if text.startswith(s)), key=len, default="")
        if symbol:
            return len(symbol), symbol
        rule = None if self.rules is None else self.rules.longest(text)
        return (1, text[0]) if rule is None else rule

    def normalize(self, text: str) -> tuple[list[Char], int]:
        """Apply the rules and see to white space; also give where the text ends."""
        model = self.model
        steps: list[tuple[str, int]] = []
        at = 0
        while at < len(text):
            taken, form = self._step(text[at : at + 64])
            steps.append((form, at))
            at += taken
        while steps and model.remove_extra_whitespaces and steps[0][0] == " ":
            del steps[0]
        out: list[Char] = []
        if not steps:
            return out, len(text)
        if model.add_dummy_prefix and not model.whitespace_as_suffix:
            out.append(Char(self.mark, steps[0][1]))
        after_space = model.remove_extra_whitespaces
        for form, source in steps:
            form = form.lstrip(" ") if after_space else form
            out += [Char(self.mark if code == " " else code, source) for code in form]
            if form:
                after_space = model.remove_extra_whitespaces and form.endswith(" ")
        end = len(text)
        while model.remove_extra_whitespaces and out and out[-1].code == self.mark:
            end = out.pop().source
        if model.add_dummy_prefix and model.whitespace_as_suffix:
            out.append(Char(self.mark, end))
        return out, end

    def best_path(self, text: str) -> list[tuple[int, str | None]]:
        """Find the best path of a text: ends and pieces, ``None`` for an unknown character.

        Sums are float32, rounded before they are compared; from 100,000 they begin anew.
        """
        best: list[tuple[np.float32, int, str | None] | None] = [(np.float32(0.0), 0, None)]
        best += [None] * len(text)
        for start in range(len(text)):
            here = best[start]
            assert here is not None
            if abs(here[0]) > MOST_SUM:
                for place, known in enumerate(best[start:], start):
                    best[place] = None if known is None else (known[0] - here[0], *known[1:])
                here = (np.float32(0.0), *here[1:])
            last = min(start + self.longest, len(text))
            found = [(stop, text[start:stop]) for stop in range(start + 1, last + 1)]
            found = [(stop, piece) for stop, piece in found if piece in self.scores]
            edges: list[tuple[int, str | None, np.float32]] = [
                (stop, piece, self.scores[piece] + here[0]) for stop, piece in found
            ]
            if not found or found[0][0] != start + 1:
                edges.append((start + 1, None, self.unknown_score + here[0]))
            for stop, piece, total in edges:
                known = best[stop]
                if known is None or total > known[0]:
                    best[stop] = (total, start, piece)
        path: list[tuple[int, str | None]] = []
        stop = len(text)
        while stop > 0:
            node = best[stop]
            assert node is not None
            path.append((stop, node[2]))
            stop = node[1]
        return path[::-1]

    def tokens(self, text: str) -> list[Token]:
        """Turn a text into tokens."""
        chars, end = self.normalize(text)
        sources = [char.source for char in chars] + [end]
        whole = "".join(char.code for char in chars)
        out: list[Token] = []
        was_unknown = False
        start = 0
        for stop, piece in self.best_path(whole):
            word = self._word(whole, start)
            span = sources[start], sources[stop]
            if piece is not None:
                out.append(Token(self.model.vocab[piece], *span, word))
            elif self.model.byte_fallback:
                data = whole[start:stop].encode()
                ids = [self.model.vocab[f"<0x{byte:02X}>"] for byte in data]
                out += [Token(number, span[0], span[0], word) for number in ids[:-1]]
                out.append(Token(ids[-1], *span, word))
            elif was_unknown:
                out[-1] = out[-1]._replace(stop=span[1])
            else:
                out.append(Token(self.model.unk_id, *span, word))
            was_unknown = piece is None
            start = stop
        return out

    def _word(self, text: str, at: int) -> int:
        """Count the words before a place: each begins, or ends, with a mark."""
        if self.model.whitespace_as_suffix:
            return text[:at].count(self.mark)
        return text[1 : at + 1].count(self.mark)


def _is_symbol(kind: str) -> bool:
    return kind == "user_defined"
