"""Lays out rows of texts that were tokenized whole: truncation, overflow rows, template.

How it works: a row has room for ``max_length`` less the template's tokens. A text that fits is
copied whole. ``longest_first`` gives the shorter text of a pair up to half of the room and the
longer one the rest; the two other strategies cut one text only. With overflow, a text is covered by
slices that overlap by ``stride`` tokens, and every further slice of the text that comes first in
the template is combined with every slice of the other. Slices are collected as views and
concatenated once at the end, so a batch is copied once. The rules are those of
csrc/text/truncation.cpp and csrc/text/batch/row_encoder.cpp.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.text.arrays import BatchArrays, IntArray
    from encoder_engine.text.encoders.protocols import EncodeRequest
    from encoder_engine.text.spec.library import OffsetTrim
    from encoder_engine.text.spec.tokenizer import TemplatePiece

__all__ = ["RowLayout", "Tokens"]

# The numbers of tokenizer.STRATEGIES.
NONE, LONGEST_FIRST, ONLY_FIRST, ONLY_SECOND = range(4)
MOST_TOKENS = 2**31 - 1
Range = tuple[int, int]


class Tokens(NamedTuple):
    """The tokens of one text.

    ids: int32 [T].
    spans: character offsets, [T, 2], on request.
    words: indices of words, [T], on request.
    blanks: characters of white space at both ends of each token, [T, 2], if offsets leave them out.
    """

    ids: IntArray
    spans: IntArray | None = None
    words: IntArray | None = None
    blanks: IntArray | None = None

    def cut(self, kept: Range, trim: OffsetTrim | None) -> Tokens:
        """Return a range of the tokens; ``trim``: leave white space out of their offsets."""
        start, stop = kept
        ids = self.ids[start:stop]
        if self.spans is None or self.words is None:
            return Tokens(ids)
        spans = self.spans[start:stop]
        if trim is not None and self.blanks is not None and len(ids):
            spans = trim_spans(spans, self.blanks[start:stop], prefixed=trim.add_prefix_space)
        return Tokens(ids, spans, self.words[start:stop])


def trim_spans(spans: IntArray, blanks: IntArray, *, prefixed: bool) -> IntArray:
    """Return a row's character offsets without the white space at the ends of its tokens.

    ``prefixed``: the model put a space before the first token; this space is not in the text, so it
    is not trimmed off. Hugging Face tokenizers assumes this at the start of every row, even where a
    row begins inside a text.
    """
    starts, stops = spans.T
    leading, trailing = blanks.T
    if prefixed:
        first = starts == 0
        first[0] = True
        leading = np.where(first & (leading == 1), 0, leading)
    trimmed = np.minimum(starts + leading, stops)
    shorter = np.maximum(stops - trailing, trimmed)
    return np.column_stack([trimmed, np.where(stops >= trailing, shorter, stops)]).astype(np.int32)


@dataclass(kw_only=True)
class RowLayout:
    """Collects tokenized texts as rows with templates; :meth:`arrays` returns all rows packed."""

    template: Sequence[TemplatePiece]
    paired: bool
    request: EncodeRequest
    trim: OffsetTrim | None
    _parts: list[Tokens] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)
    _first_lengths: list[int] = field(default_factory=list)
    _samples: list[int] = field(default_factory=list)
    _truncated: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._special = [
            self._template_tokens(piece) if piece.kind == "special" else None
            for piece in self.template
        ]
        taken = sum(len(piece.ids) for piece in self.template if piece.kind == "special")
        self._room = self.request.max_length - (taken if self.request.add_special_tokens else 0)

    def _template_tokens(self, piece: TemplatePiece) -> Tokens:
        ids = np.asarray(piece.ids, dtype=np.int32)
        if not self.request.with_spans:
            return Tokens(ids)
        return Tokens(ids, np.zeros((len(ids), 2), np.int32), np.full(len(ids), -1, np.int32))

    def add(self, first: Tokens, second: Tokens | None) -> None:
        """Add the row of a text or pair, and with ``overflow`` its overflow rows."""
        row = len(self._truncated)
        sizes = len(first.ids), 0 if second is None else len(second.ids)
        kept = self._share(*sizes, row)
        if self.request.overflow and self.request.strategy != NONE:
            self._truncated.append(False)
            firsts = self._slices(sizes[0], kept[0], row, second=False)
            seconds = self._slices(sizes[1], kept[1], row, second=True)
            self._add_overflow(first, second, firsts, seconds)
            return
        self._truncated.append(kept != sizes)
        ranges = [
            (n - k, n) if self.request.left else (0, k) for n, k in zip(sizes, kept, strict=True)
        ]
        self._add_row(first, second, ranges[0], ranges[1])

    def _share(self, first: int, second: int, row: int) -> tuple[int, int]:
        """Return how many tokens of its first and of its second text a row keeps."""
        room = self._room
        if self.request.strategy == NONE or first + second <= room:
            return first, second
        if room == 0:
            return 0, 0
        if self.request.strategy == LONGEST_FIRST:
            return self._share_longest_first(first, second)
        rest = second if self.request.strategy == ONLY_FIRST else first
        if rest >= room:
            raise InputError(
                f"{self._place(row, second=self.request.strategy == ONLY_SECOND)} would have to go "
                f"altogether: the other text of its pair has at least {rest} tokens; raise "
                "max_length or use longest_first",
                row=row,
            )
        return (
            (room - second, second)
            if self.request.strategy == ONLY_FIRST
            else (first, room - first)
        )

    def _share_longest_first(self, first: int, second: int) -> tuple[int, int]:
        room = self._room
        if not self.paired:
            return room, 0
        shorter, longer = min(first, second), max(first, second)
        longer = shorter if shorter > room else max(shorter, room - shorter)
        if shorter + longer > room:
            shorter = room // 2
            longer = shorter + room % 2
        return (longer, shorter) if first > second else (shorter, longer)

    def _slices(self, length: int, keep: int, row: int, *, second: bool) -> list[Range]:
        """Return the ranges of a text's tokens that its rows hold, the main row's first.

        ``keep``: the tokens of a range. Neighbouring ranges share ``stride`` tokens.
        """
        if length <= keep:
            return [(0, length)]
        if self.request.stride >= keep:
            raise InputError(
                f"{self._place(row, second=second)} keeps {keep} tokens a row, so overflow rows "
                "cannot share as many as the stride; lower stride or raise max_length",
                row=row,
            )
        out: list[Range] = []
        for done in range(0, length, keep - self.request.stride):
            reach = min(done + keep, length)
            out.append((length - reach, length - done) if self.request.left else (done, reach))
            if reach == length:
                break
        return out

    def _place(self, row: int, *, second: bool) -> str:
        which = ("second text" if second else "first text") if self.paired else "text"
        return f"{which} at row {row}"

    def _add_overflow(
        self, first: Tokens, second: Tokens | None, firsts: list[Range], seconds: list[Range]
    ) -> None:
        """Add a text's or pair's main row, then the rows of further slices.

        A further slice of the text that comes first is combined with every slice of the other text.
        """
        leads = next(piece.kind for piece in self.template if piece.kind != "special")
        leading, following = (firsts, seconds) if leads == "first" else (seconds, firsts)
        pairs = [(leading[0], following[0])]
        pairs += [(a, b) for a in leading[1:] for b in following]
        pairs += [(leading[0], b) for b in following[1:]]
        for a, b in pairs:
            self._add_row(first, second, *((a, b) if leads == "first" else (b, a)))

    def _add_row(self, first: Tokens, second: Tokens | None, a: Range, b: Range) -> None:
        length = 0
        for piece, special in zip(self.template, self._special, strict=True):
            if special is not None:
                if not self.request.add_special_tokens:
                    continue
                part = special
            elif piece.kind == "first":
                part = first.cut(a, self.trim)
            else:
                assert second is not None
                part = second.cut(b, self.trim)
            self._parts.append(part)
            length += len(part.ids)
        self._lengths.append(length)
        self._first_lengths.append(a[1] - a[0])
        self._samples.append(len(self._truncated) - 1)

    def arrays(self) -> BatchArrays:
        """Return the arrays of all rows, packed, as ``_native.BatchEncoder`` returns them."""
        total = sum(self._lengths)
        if total > MOST_TOKENS:
            raise InputError(
                f"the batch has {total} tokens; cu_seqlens is 32-bit, so encode it in smaller "
                "batches"
            )
        none = Tokens(np.zeros(0, np.int32), np.zeros((0, 2), np.int32), np.zeros(0, np.int32))
        parts = [none, *self._parts]
        spans = [part.spans for part in parts if part.spans is not None]
        words = [part.words for part in parts if part.words is not None]
        starts = np.zeros(len(self._lengths) + 1, np.int32)
        starts[1:] = np.cumsum(self._lengths, dtype=np.int64)
        return (
            np.concatenate([part.ids for part in parts]),
            starts,
            np.asarray(self._first_lengths, np.int32) if self.paired else None,
            np.concatenate(spans) if self.request.with_spans else None,
            np.concatenate(words) if self.request.with_spans else None,
            np.asarray(self._samples, np.int32) if self.request.overflow else None,
            np.asarray(self._truncated, np.bool_),
        )
