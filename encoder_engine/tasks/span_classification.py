"""Classification of spans of words: entities that may nest.

A span of up to ``max_width`` words is scored in the window (of a long sentence) that holds the most
tokens around it. NULL is the class of spans that are no entity. Spans with 1 - P(NULL) of at least
a threshold are predicted, highest first. Flat predictions do not overlap; nested ones may contain
one another, but do not partly overlap.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.metrics.entities import entities
from encoder_engine.packing.spans import SpanSummary, list_spans
from encoder_engine.tasks import words as word_models
from encoder_engine.tasks.items import Ragged, TaskBatch, feature_targets
from encoder_engine.tasks.labels import check_label, collect_labels
from encoder_engine.tasks.words.span_selection import (
    LOWEST_SCORE,
    NOT_HERE,
    PredictedSpan,
    Span,
    best_threshold,
    crossing,
    places_in_item,
    scores_of_spans,
    select_spans,
    window_of_spans,
)
from encoder_engine.tasks.words.tags import is_bio, mend_bio, warn_of_mended
from encoder_engine.tasks.words.windows import encode_words
from encoder_engine.tasks.words.word_task import WordTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record
    from encoder_engine.models import Encoder
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Tokenizer

    Integers = npt.NDArray[np.int64]

__all__ = ["SpanClassificationTask", "SpanExample", "SpanPrediction"]

# The share of gold spans that the default ``max_width`` covers.
_COVERED = 0.999


@dataclass(frozen=True, slots=True)
class SpanExample:
    """The words of a sentence, and its gold spans; None: unlabelled.

    ``num_mended``: the number of tags that were repaired when they were read.
    """

    words: tuple[str, ...]
    spans: frozenset[Span] | None = None
    num_mended: int = 0


class SpanPrediction(NamedTuple):
    """A sentence's predicted spans, in order of position.

    ``ranked``: the candidate spans, highest score first; those of at least the threshold are
    predicted.
    """

    spans: tuple[PredictedSpan, ...]
    ranked: tuple[PredictedSpan, ...]


@dataclass(frozen=True, kw_only=True)
class SpanClassificationTask(WordTask[SpanExample, SpanPrediction]):
    """Finds spans of words and their types.

    Columns and files: see :class:`WordTask`. The gold spans come from BIO tags, or from the column
    ``entities``: a list of dicts such as ``{"start": 0, "stop": 2, "label": "PER"}``, here of words
    0 and 1.
    ``labels``: the types, in the order of the head's outputs after NULL; empty: the types in the
    training rows.
    ``nested``: spans may contain one another; False: gold that overlaps is refused.
    ``max_width``: the most words of a span; 0: as many as cover 99.9% of the gold spans.
    ``summary``: the pooling of a span's words; ``hidden``, ``dropout``: the features of the head's
    own layers, and its dropout rate.
    ``metric``: the score that selects the best checkpoint; None: span_f1.

    Fitted in training: ``labels``, ``max_width``, ``covered`` (the share of gold spans of at most
    that width; longer ones count as missed), and ``threshold`` of 1 - P(NULL), from dev rows.
    """

    name: ClassVar[str] = "span-classification"

    entities: str = "entities"
    labels: tuple[str, ...] = ()
    nested: bool = False
    max_width: int = 0
    summary: SpanSummary = "mean"
    hidden: int = 256
    dropout: float = 0.1
    metric: str | None = None
    covered: float = 1.0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.max_width < 0 or self.hidden < 1 or not 0.0 <= self.dropout < 1.0:
            raise ConfigError(
                f"task.max_width is {self.max_width}, task.hidden {self.hidden} and task.dropout "
                f"{self.dropout}; expected max_width >= 0, hidden >= 1 and 0 <= dropout < 1"
            )

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric or "span_f1"

    def read(self, record: Record) -> SpanExample:
        """Make an example from a row; a row with neither tags nor entities is unlabelled."""
        words = self.read_words(record)
        if record.has(self.entities):
            return SpanExample(tuple(words), self._read_entities(record, len(words)))
        if not record.has(self.tags):
            return SpanExample(tuple(words))
        tags = self.read_tags(record, len(words))
        if not is_bio((*tags, "B-any")):
            wrong = next(tag for tag in tags if not is_bio((tag, "B-any")))
            record.refuse(f"the tag {wrong!r} is none of O, B-type and I-type; mend it")
        tags, num_mended = mend_bio(record, tags, strict=self.strict)
        spans = frozenset(Span(found.start, found.stop, found.type) for found in entities(tags))
        for span in spans:
            check_label(record, span.type, self.labels)
        return SpanExample(tuple(words), spans, num_mended)

    def _read_entities(self, record: Record, num_words: int) -> frozenset[Span]:
        value = record.get(self.entities)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            record.refuse(f"{self.entities} must be a list, got {value!r:.60}")
        spans = [
            self._read_entity(record, place, one, num_words) for place, one in enumerate(value)
        ]
        for one, two in combinations(sorted(set(spans)), 2):
            if one[:2] == two[:2]:
                record.refuse(
                    f"words {one.start} to {one.stop - 1} are both {one.type} and {two.type}; a "
                    "span has one type"
                )
            if crossing(one, two, nested=self.nested):
                mend = "cross" if self.nested else "overlap; set task.nested, or remove one"
                record.refuse(f"the entities {list(one)} and {list(two)} {mend}")
        return frozenset(spans)

    def _read_entity(self, record: Record, place: int, value: Any, num_words: int) -> Span:
        where = f"{self.entities}[{place}]"
        if not isinstance(value, dict) or not {"start", "stop", "label"} <= value.keys():
            record.refuse(f"{where} must have start, stop and label, got {value!r:.60}")
        start, stop, label = value["start"], value["stop"], value["label"]
        whole = all(isinstance(x, int) and not isinstance(x, bool) for x in (start, stop))
        if not whole or not 0 <= start < stop <= num_words:
            record.refuse(
                f"{where} runs from {start!r} to {stop!r}; expected whole numbers of words, 0 <= "
                f"start < stop <= {num_words}"
            )
        if not isinstance(label, str) or not label.strip():
            record.refuse(f"{where}.label must be a name, got {label!r:.60}")
        check_label(record, label, self.labels)
        return Span(start, stop, label)

    def fit(self, examples: Sequence[SpanExample]) -> Self:
        """Return the task with the types, and the ``max_width`` that covers 99.9% of gold spans."""
        spans = [span for example in examples for span in example.spans or ()]
        present = collect_labels((span.type for span in spans), least=1)
        labels = self.labels or present
        widths = np.sort([span.stop - span.start for span in spans])
        width = self.max_width or int(widths[max(int(np.ceil(_COVERED * len(widths))) - 1, 0)])
        covered = float((widths <= width).mean())
        return replace(self, labels=labels, max_width=width, covered=covered, spaced=True)

    def unlabelled(self, example: SpanExample) -> str | None:
        """Return why an example without gold spans cannot be learned; None: it has a list."""
        if example.spans is not None:
            return None
        return (
            f"the row is not labelled: neither {self.tags} nor {self.entities} has a value; name "
            "their column by task.tags or task.entities, or drop the row"
        )

    def key(self, example: SpanExample) -> object:
        """Return an example's words, by which it is recognised as a duplicate."""
        return example.words

    def gold_key(self, example: SpanExample) -> object:
        """Return an example's gold spans; duplicates with different ones contradict each other."""
        return example.spans

    def encode(
        self, examples: Sequence[SpanExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize sentences; a span is scored in the window that has most tokens around it."""
        warn_of_mended([example.num_mended for example in examples])
        sentences = [example.words for example in examples]
        items = encode_words(sentences, tokenizer, windows, partition=False, spaced=self.spaced)
        words, places = items.ragged("words"), items.ragged("places")
        counts = np.diff(words.offsets)
        spans = [list_spans(np.array([0, count]), self.max_width) for count in counts.tolist()]
        classes = [np.zeros(len(found.starts), np.int64) for found in spans]
        for group in np.split(np.arange(len(items)), np.flatnonzero(np.diff(items.examples)) + 1):
            if len(group) > 1:
                self._leave_to_others(group, items, classes)
        numbers = {label: number for number, label in enumerate(self.labels, start=1)}
        for item, example in enumerate(items.examples.tolist()):
            there = words.of(item)
            for span in examples[example].spans or ():
                start, stop = np.searchsorted(there, [span.start, span.stop])
                # A gold span that begins or ends in words without a token cannot be found.
                if start == stop or there[start] != span.start or there[stop - 1] != span.stop - 1:
                    continue
                if stop - start <= self.max_width:
                    place = places_in_item(start, stop - start, counts[item])
                    if classes[item][place] != NOT_HERE:
                        classes[item][place] = numbers[span.type]
        sizes = np.r_[0, np.cumsum([len(found) for found in classes])]
        flat = np.concatenate([np.zeros(0, np.int64), *classes])
        columns = {"words": words, "places": places, "classes": Ragged(flat, sizes)}
        return replace(items, columns=columns)

    def _leave_to_others(self, group: Integers, items: Items, classes: list[Integers]) -> None:
        """Set to -1, in place, the class of each span that another window of the sentence scores.

        ``group``: the indices of the items, which are the sentence's windows.
        ``classes``: the classes of each item's spans.
        """
        words, places = items.ragged("words"), items.ragged("places")
        lengths = items.num_tokens
        inside = [words.of(item) for item in group.tolist()]
        before = [places.of(item) for item in group.tolist()]
        after = [lengths[item] - places.of(item) for item in group.tolist()]
        kept = window_of_spans(inside, before, after, self.max_width)
        for item, mine in zip(group.tolist(), kept, strict=True):
            classes[item][~mine] = NOT_HERE

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input; the last block computes only the first subword of each word."""
        places = items.ragged("places")
        firsts = np.repeat(items.token_offsets[:-1], np.diff(places.offsets))
        targets = {"classes": self._classes(items)[1], **feature_targets(items)}
        return TaskBatch(items.rows, targets, places.values + firsts)

    def feature_offsets(self, items: Items) -> Integers:
        """Return where each item's cached encoder outputs begin, [N + 1]: one row per word."""
        return items.ragged("places").offsets

    def _classes(self, items: Items) -> tuple[Any, Integers]:
        """Return a batch's spans, in the order of the head's outputs, and each span's class."""
        offsets, classes = items.ragged("words").offsets, items.ragged("classes")
        spans = list_spans(offsets, self.max_width)
        local = places_in_item(
            spans.starts - offsets[spans.owners],
            spans.stops - spans.starts,
            np.diff(offsets)[spans.owners],
        )
        return spans, classes.values[classes.offsets[spans.owners] + local]

    @property
    def _head(self) -> dict[str, Any]:
        """The keywords of the model's span head, except for its input size."""
        return {
            "num_outputs": len(self.labels) + 1,
            "max_width": self.max_width,
            "summary": self.summary,
            "hidden": self.hidden,
            "dropout": self.dropout,
        }

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; its head is random."""
        return word_models.SpanModel.new(encoder, **self._head)

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an encoder with its head, as a PyTorch module."""
        return word_models.SpanModel.load(saved, **self._head)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return word_models.load_spans(source, **self._head)

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[SpanExample]
    ) -> list[SpanPrediction]:
        """Predict the spans of each sentence from all of its windows."""
        probabilities = outputs["probabilities"].astype(np.float64)
        spans, classes = self._classes(items)
        scores = 1.0 - probabilities[:, 0]
        likely = np.flatnonzero((scores >= LOWEST_SCORE) & (classes != NOT_HERE))
        types = probabilities[likely, 1:].argmax(1)
        words = items.ragged("words").values
        found: list[list[PredictedSpan]] = [[] for _ in examples]
        for place, kind in zip(likely.tolist(), types.tolist(), strict=True):
            found[items.examples[spans.owners[place]]].append(
                PredictedSpan(
                    int(words[spans.starts[place]]),
                    int(words[spans.stops[place] - 1]) + 1,
                    self.labels[kind],
                    float(scores[place]),
                )
            )
        return [self._predict(select_spans(one, nested=self.nested)) for one in found]

    def _predict(self, ranked: tuple[PredictedSpan, ...]) -> SpanPrediction:
        taken = [span for span in ranked if span.score >= self.threshold]
        return SpanPrediction(
            tuple(sorted(taken, key=lambda span: (span.start, -span.stop))), ranked
        )

    def tuned(self, examples: Sequence[SpanExample], predictions: Sequence[SpanPrediction]) -> Self:
        """Return the task with the threshold that gives the highest F1 on these (dev) rows."""
        ranked = [prediction.ranked for prediction in predictions]
        found = best_threshold(_gold(examples), ranked, self.threshold)
        return replace(self, threshold=found)

    def revised(self, predictions: Sequence[SpanPrediction]) -> list[SpanPrediction]:
        """Return the predictions with this task's threshold applied."""
        return [self._predict(prediction.ranked) for prediction in predictions]

    def score_names(self, examples: Sequence[SpanExample]) -> tuple[str, ...]:
        """Return the names of F1, precision and recall of spans."""
        del examples
        return "span_f1", "span_precision", "span_recall"

    def score(
        self, examples: Sequence[SpanExample], predictions: Sequence[SpanPrediction]
    ) -> dict[str, float]:
        """Return span precision, recall and F1 in percent; too wide gold spans count as missed."""
        whole = scores_of_spans(_gold(examples), _found(predictions))[""]
        return {f"span_{name}": whole[name] for name in ("f1", "precision", "recall")}

    def row_scores(
        self, examples: Sequence[SpanExample], predictions: Sequence[SpanPrediction]
    ) -> npt.NDArray[np.float64]:
        """Return each sentence's F1 of spans; 1 where neither gold nor prediction has a span."""
        pairs = zip(_gold(examples), _found(predictions), strict=True)
        return np.array(
            [
                2.0 * len(one & two) / (len(one) + len(two)) if one or two else 1.0
                for one, two in pairs
            ]
        )

    def degenerate(self, predictions: Sequence[SpanPrediction]) -> str | None:
        """Return a warning's text if none of several rows gets a span; else None."""
        if len(predictions) < 2 or any(prediction.spans for prediction in predictions):
            return None
        return "no span is predicted anywhere: nothing was learned"

    def details(
        self, examples: Sequence[SpanExample], predictions: Sequence[SpanPrediction]
    ) -> dict[str, Any]:
        """Return each type's scores, and the share of gold spans of at most ``max_width`` words."""
        by_type = scores_of_spans(_gold(examples), _found(predictions))
        entities_by_type = {kind: scores for kind, scores in by_type.items() if kind}
        return {
            "entities": entities_by_type,
            "max_width": self.max_width,
            "covered": 100.0 * self.covered,
            "threshold": self.threshold,
        }

    def to_record(self, example: SpanExample, prediction: SpanPrediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        found = [
            {"start": span.start, "stop": span.stop, "label": span.type, "score": span.score}
            for span in prediction.spans
        ]
        return {self.words: list(example.words), "prediction": found}


def _gold(examples: Sequence[SpanExample]) -> list[frozenset[Span]]:
    return [example.spans or frozenset() for example in examples]


def _found(predictions: Sequence[SpanPrediction]) -> list[frozenset[Span]]:
    return [frozenset(Span(*span[:3]) for span in one.spans) for one in predictions]
