"""Finds entities of labels that are given at prediction, by a GLiNER model.

How it works: the input of the encoder is the labels, each after a marker token, then the words of a
text (Zaratiana et al. 2024). Every span of up to ``max_width`` words is scored for every label, and
spans are selected as in :mod:`span_classification`. A text that is too long for one input is cut
into windows that share ``max_width - 1`` words, so that each span lies whole in the window that its
first word belongs to; only spans of more tokens than a window are lost. A word of more tokens than
a window is truncated, and its text counted.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.families.gliner import GlinerSettings  # noqa: TC001 - read from fields
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks import engines
from encoder_engine.tasks.items import Items, Ragged, TaskBatch
from encoder_engine.tasks.span_classification import SpanClassificationTask
from encoder_engine.tasks.words.span_selection import PredictedSpan, select_spans
from encoder_engine.tasks.words.windows import template_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import SavedModel
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Tokenizer

    Integers = npt.NDArray[np.int64]

__all__ = ["WORD", "PromptedSpanTask"]

# As gliner splits texts: words with hyphens and underscores inside, and single other characters.
WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")


class _Window(NamedTuple):
    """Words ``first`` to ``last - 1`` of a text, as one window.

    The window scores the spans that begin before the word ``owned``; later ones belong to the next
    window.
    """

    first: int
    last: int
    owned: int


@dataclass(frozen=True, kw_only=True)
class PromptedSpanTask(SpanClassificationTask):
    """Finds spans of texts, with labels given at prediction; its examples are strings.

    ``settings``: those of the GLiNER model. ``labels``: the types of the spans.
    """

    settings: GlinerSettings

    def read(self, record: Record) -> NoReturn:
        """Raise :class:`UnsupportedFeatureError`: files name no labels, which the model needs."""
        del record
        raise UnsupportedFeatureError(
            "a GLiNER model finds the labels that it is given: call "
            "SpanTagger.entities(texts, labels=[...])"
        )

    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, windows: Windows) -> Items:
        """Tokenize each text, or window of it, together with the labels.

        Raises :class:`InputError` where the labels leave no room for a text.
        """
        prompt, places = self._prompt(tokenizer)
        ids_before, ids_after = template_ids(tokenizer)
        before = np.r_[ids_before, prompt]
        room = windows.max_length - len(before) - len(ids_after)
        if room < self.settings.max_width:
            raise InputError(
                f"{len(self.labels)} labels take {len(before)} of the {windows.max_length} tokens "
                f"that the model reads, and leave no room for {self.settings.max_width} words, the "
                "most of a span; give fewer labels at a time"
            )
        chars = [[match.span() for match in WORD.finditer(text)] for text in examples]
        texts = tokenizer.encode_batch(
            [
                [text[start:stop] for start, stop in spans]
                for text, spans in zip(examples, chars, strict=True)
            ],
            add_special_tokens=False,
            is_split_into_words=True,
            return_offsets=True,
        )
        word_of = texts.word_ids.astype(np.int64)
        rows, owners, tokens, words, owned, spans = [], [], [], [], [], []
        cut = set()
        for example, (begin, end) in enumerate(pairwise(texts.cu_seqlens.tolist())):
            # Where each word's tokens begin, also of words without one.
            starts = begin + np.searchsorted(
                word_of[begin:end], np.arange(len(chars[example]) + 1), side="left"
            )
            for window in self._windows(starts, room):
                first = int(starts[window.first])
                last = min(int(starts[window.last]), first + room)
                cut |= {example} if last < starts[window.last] else set()
                rows.append(np.r_[before, texts.ids[first:last], ids_after])
                tokens.append(np.arange(last - first) + len(before))
                words.append(word_of[first:last] - window.first)
                owners.append(example)
                owned.append(window.owned - window.first)
                inside = chars[example][window.first : window.last]
                spans.append(np.array(inside, np.int64).reshape(-1, 2))
        lengths = np.array([len(row) for row in rows], np.int64)
        return Items(
            rows=TokenRows(
                ids=np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32),
                cu_seqlens=np.r_[0, np.cumsum(lengths)].astype(np.int32),
            ),
            offsets=np.arange(len(rows) + 1),
            examples=np.array(owners, np.int64),
            columns={
                "labels": np.tile(places + len(ids_before), (len(rows), 1)),
                "owned": np.array(owned, np.int64),
                "tokens": _ragged(tokens),
                "words": _ragged(words),
                "chars": _ragged(spans, (0, 2)),
            },
            num_truncated=len(cut),
        )

    def _prompt(self, tokenizer: Tokenizer) -> tuple[Integers, Integers]:
        """Return the token ids of all labels, each after its marker, and an index for each label.

        The index is that of the token whose hidden state stands for the label: the marker or, by
        the model's settings, the token after it. Raises :class:`InputError` where the tokenizer
        does not read each marker as one token.
        """
        settings = self.settings
        parts = [part for label in self.labels for part in (settings.label_token, label)]
        found = tokenizer.encode_batch(
            [[*parts, settings.end_token]],
            add_special_tokens=False,
            is_split_into_words=True,
            return_offsets=True,
        )
        marker = tokenizer.token_to_id(settings.label_token)
        places = np.flatnonzero(found.ids == marker)
        wanted = np.searchsorted(found.word_ids, np.arange(0, len(parts), 2))
        if marker is None or not np.array_equal(places, wanted):
            raise InputError(
                f"the tokenizer does not read the token {settings.label_token} as one before each "
                "label: a label holds it, or the tokenizer is of another model"
            )
        return found.ids.astype(np.int64), places + (not settings.reads_marker)

    def _windows(self, starts: Integers, room: int) -> Iterator[_Window]:
        """Yield windows of a text, each of up to ``room`` tokens and ``settings.max_words`` words.

        ``starts``: the index of each word's first token, then the number of tokens. A word of more
        tokens than ``room`` is a window of its own.
        """
        count, first = len(starts) - 1, 0
        if not count:
            yield _Window(0, 0, 0)
        while first < count:
            last = int(np.searchsorted(starts, starts[first] + room, side="right")) - 1
            # A word of more tokens than there is room for is cut.
            last = min(max(last, first + 1), first + self.settings.max_words, count)
            if last == count:
                yield _Window(first, last, last)
                return
            following = max(last - self.settings.max_width + 1, first + 1)
            yield _Window(first, last, following)
            first = following

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input; its targets say which tokens words and labels are read from."""
        firsts = items.token_offsets[:-1]
        tokens, words, chars = (items.ragged(name) for name in ("tokens", "words", "chars"))
        of_item = np.repeat(np.arange(len(items)), np.diff(tokens.offsets))
        targets = {
            "tokens": tokens.values + firsts[of_item],
            "words": words.values + chars.offsets[of_item],
            "offsets": chars.offsets,
            "labels": items.column("labels") + firsts[:, None],
        }
        return TaskBatch(items.rows, targets)

    def load_model(self, saved: SavedModel) -> Any:
        """Load the encoder as a PyTorch module, and the layers after it, which compute on a CPU."""
        return engines.load_prompted_module(saved, self.settings)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return engines.load_prompted(source, self.settings)

    def decode(self, outputs: Outputs, items: Items, examples: Sequence[Any]) -> list[Any]:
        """Return the labelled spans of each text, in characters, in order of position."""
        chars = items.ragged("chars")
        found: list[list[PredictedSpan]] = [[] for _ in examples]
        place = 0
        for item, example in enumerate(items.examples.tolist()):
            there, owned = chars.of(item), int(items.column("owned")[item])
            size = len(there) * self.settings.max_width
            scores = outputs["probabilities"][place : place + size]
            place += size
            best = scores.argmax(1)
            highest = scores[np.arange(size), best]
            for span in np.flatnonzero(highest > self.threshold).tolist():
                word, longer = divmod(span, self.settings.max_width)
                if word < owned:
                    start, stop = int(there[word, 0]), int(there[word + longer, 1])
                    label, score = self.labels[best[span]], float(highest[span])
                    found[example].append(PredictedSpan(start, stop, label, score))
        return [
            sorted(select_spans(one, nested=self.nested), key=lambda span: (span.start, -span.stop))
            for one in found
        ]


def _ragged(parts: Sequence[npt.NDArray[Any]], shape: tuple[int, ...] = (0,)) -> Ragged:
    sizes = np.r_[0, np.cumsum([len(one) for one in parts])].astype(np.int64)
    return Ragged(np.concatenate([np.zeros(shape, np.int64), *parts]), sizes)
