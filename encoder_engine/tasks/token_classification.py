"""Classification of words: entities by BIO tags, parts of speech, and other tags.

Rows are lists of words with a tag each, from tables, CoNLL or CoNLL-U files. By default the first
subword of a word is classified (BERT); every labelled word is scored; long sentences are read in
overlapping windows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.packing.tag_paths import LegalTags, viterbi
from encoder_engine.tasks import words as word_models
from encoder_engine.tasks.items import Ragged, TaskBatch, feature_targets
from encoder_engine.tasks.labels import (
    balanced_weights,
    check_label,
    collect_labels,
    softmax,
    unlabelled,
)
from encoder_engine.tasks.words.scores import (
    ENTITY_SCORES,
    TAG_SCORES,
    entity_details,
    plain_details,
    row_f1,
    scores_of_entities,
    scores_of_tags,
)
from encoder_engine.tasks.words.tags import (
    OUTSIDE,
    bio_labels,
    check_types,
    entity_types,
    is_bio,
    mend_bio,
    warn_of_mended,
)
from encoder_engine.tasks.words.windows import Subwords, decode_words, encode_words
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

__all__ = ["TaggedExample", "TaggedPrediction", "TokenClassificationTask"]


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """The words of a sentence, and their gold tags; None: unlabelled.

    ``num_mended``: the number of tags that were repaired when they were read.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    num_mended: int = 0


class TaggedPrediction(NamedTuple):
    """The tags of a sentence's words, and the softmax probability of each tag, float64 [n].

    The probability of a word without a token is 0.
    """

    tags: tuple[str, ...]
    probabilities: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TokenClassificationTask(WordTask[TaggedExample, TaggedPrediction]):
    """Tags the words of sentences.

    Columns and files: see :class:`WordTask`.
    ``scheme``: ``"bio"`` for entities, ``"plain"`` for any tags; ``"auto"``: found from the
    training rows' tags.
    ``labels``: the tags in the order of the head's outputs; empty: the tags in the training rows.
    ``subwords``: the tokens of a word that are trained on its tag: the first (BERT), or all.
    ``pooling``: with ``subwords="all"``, a word's logits: the first subword's, their mean or
    maximum.
    ``decoding``: each word's argmax, a sentence's best legal BIO sequence, or a CRF.
    ``metric``: the score that selects the best checkpoint; None: conlleval_f1, or accuracy.
    ``label_smoothing``, ``class_weights``: see :class:`SequenceClassificationTask`.

    Fitted in training: ``labels``, ``scheme``, ``weights``, and ``silent_tag``, the tag of words
    that have no token.
    """

    name: ClassVar[str] = "token-classification"

    scheme: Literal["auto", "bio", "plain"] = "auto"
    labels: tuple[str, ...] = ()
    subwords: Subwords = "first"
    pooling: Literal["first", "mean", "max"] = "first"
    decoding: Literal["argmax", "constrained", "crf"] = "argmax"
    metric: str | None = None
    label_smoothing: float = 0.0
    class_weights: Literal["none", "balanced"] = "none"
    weights: tuple[float, ...] = ()
    silent_tag: str = OUTSIDE

    def __post_init__(self) -> None:
        if self.decoding == "crf" and self.subwords == "all":
            raise ConfigError(
                "task.decoding crf needs one row per word; set task.subwords to first"
            )
        if self.decoding == "crf" and (self.label_smoothing or self.class_weights != "none"):
            raise ConfigError(
                "task.decoding crf supports neither label_smoothing nor class_weights: its loss is "
                "over whole sentences; leave them out"
            )
        if self.pooling != "first" and self.subwords == "first":
            raise ConfigError(
                f"task.pooling {self.pooling} reads all subwords of a word; set task.subwords to "
                "all"
            )
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ConfigError(f"task.label_smoothing is {self.label_smoothing}; expected 0 to 1")
        if self.decoding == "constrained" and self.scheme == "plain":
            raise ConfigError("task.decoding constrained needs BIO tags; task.scheme is plain")

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return self.metric or ("accuracy" if self.scheme == "plain" else "conlleval_f1")

    def read(self, record: Record) -> TaggedExample:
        """Make an example from a row; a row without tags is unlabelled."""
        words = self.read_words(record)
        if not record.has(self.tags):
            return TaggedExample(tuple(words))
        tags, mended = self.read_tags(record, len(words)), 0
        if self.scheme == "bio" and not is_bio((*tags, "B-any")):
            wrong = next(tag for tag in tags if not is_bio((tag, "B-any")))
            record.refuse(
                f"the tag {wrong!r} is none of O, B-type and I-type; mend it, or set "
                "task.scheme to plain"
            )
        if self.scheme != "plain" and is_bio(tags):
            tags, mended = mend_bio(record, tags, strict=self.strict)
        for tag in dict.fromkeys(tags):
            check_label(record, tag, self.labels)
        return TaggedExample(tuple(words), tuple(tags), mended)

    def fit(self, examples: Sequence[TaggedExample]) -> Self:
        """Return the task with what the training rows determine.

        These are the scheme, the tags, class weights, and the tag of words that have no token.
        """
        counts = Counter(tag for example in examples for tag in example.tags or ())
        scheme = self.scheme
        if scheme == "auto":
            scheme = "bio" if is_bio(counts) or set(counts) == {OUTSIDE} else "plain"
            mended = sum(example.num_mended for example in examples)
            if scheme == "plain" and mended:
                foreign = next(tag for tag in counts if tag != OUTSIDE and not is_bio((tag,)))
                raise ConfigError(
                    f"the tag {foreign!r} is not BIO, but {mended} tags I-type of other rows were "
                    "read as B-type, as in IOB1; set task.scheme to plain, or mend the tag"
                )
        labels = self.labels
        if scheme == "bio":
            check_types(types := entity_types(counts))
            # Both tags of each type: a type of one-word entities in these rows may have others.
            labels = labels or bio_labels(types)
            other = next((tag for tag in labels if tag != OUTSIDE and not is_bio((tag,))), None)
            if other is not None:
                raise ConfigError(
                    f"task.labels has {other!r}, and BIO has {OUTSIDE}, B-type and I-type alone; "
                    "take it out, or set task.scheme to plain"
                )
            if OUTSIDE not in labels:
                raise ConfigError(
                    f"task.labels {', '.join(labels)} has no {OUTSIDE}, which BIO gives words "
                    "outside of entities; add it, or set task.scheme to plain"
                )
        labels = labels or collect_labels(counts)
        fitted = replace(
            self,
            scheme=scheme,
            labels=labels,
            spaced=True,
            silent_tag=OUTSIDE if scheme == "bio" else counts.most_common(1)[0][0],
        )
        if self.class_weights == "none":
            return fitted
        places = {tag: number for number, tag in enumerate(labels)}
        classes = np.repeat([places[tag] for tag in counts], list(counts.values()))
        return replace(fitted, weights=balanced_weights(classes, len(labels)))

    def unlabelled(self, example: TaggedExample) -> str | None:
        """Return why a model cannot learn from an example without tags; None: it has tags."""
        return unlabelled("tags", self.tags) if example.tags is None else None

    def key(self, example: TaggedExample) -> object:
        """Return an example's words, by which it is recognised as a duplicate."""
        return example.words

    def gold_key(self, example: TaggedExample) -> object:
        """Return an example's gold tags; duplicates with different ones contradict each other."""
        return example.tags

    def encode(
        self, examples: Sequence[TaggedExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize sentences; a word is classified in the window with most tokens around it."""
        warn_of_mended([example.num_mended for example in examples])
        items = encode_words(
            *([example.words for example in examples], tokenizer, windows, self.subwords),
            spaced=self.spaced,
        )
        golds = [example.tags for example in examples if example.tags is not None]
        if len(golds) < len(examples):
            return items
        places = {tag: number for number, tag in enumerate(self.labels)}
        flat = np.array([places[tag] for tags in golds for tag in tags], np.int64)
        firsts = np.r_[0, np.cumsum([len(tags) for tags in golds])]
        words = items.ragged("words")
        owners = np.repeat(items.examples, np.diff(words.offsets))
        target = Ragged(flat[firsts[owners] + words.values], words.offsets)
        return replace(items, columns={**items.columns, "tags": target})

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input; the last block computes only the tokens that the head reads."""
        places = items.ragged("places")
        firsts = np.repeat(items.token_offsets[:-1], np.diff(places.offsets))
        targets = feature_targets(items)
        if "tags" in items.columns:
            targets["tags"] = items.ragged("tags").values
        if self.decoding == "crf":
            targets["runs"], targets["begins"], targets["ends"] = _runs(items)
        return TaskBatch(items.rows, targets, places.values + firsts)

    def feature_offsets(self, items: Items) -> npt.NDArray[np.int64]:
        """Return where each item's cached encoder outputs begin, [N + 1]: one per token read."""
        return items.ragged("places").offsets

    @property
    def legal_tags(self) -> LegalTags:
        """The tags that may begin or end a sentence, and those that may follow each other."""
        if self.scheme == "bio":
            return LegalTags.bio(self.labels)
        return LegalTags.everything(len(self.labels))

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; its head is random."""
        model = word_models.TaggingModel.new(
            encoder,
            self.labels,
            self.legal_tags if self.decoding == "crf" else None,
            weights=self.weights,
            label_smoothing=self.label_smoothing,
        )
        return cast("TaskModel", model)

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an encoder with head and any CRF, as a PyTorch module."""
        model = word_models.TaggingModel.load(
            saved,
            self.labels,
            self.legal_tags if self.decoding == "crf" else None,
            weights=self.weights,
            label_smoothing=self.label_smoothing,
        )
        return cast("TaskModel", model)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model, with any CRF, for the compiled engine (C++, on a CPU)."""
        legal = self.legal_tags if self.decoding == "crf" else None
        return word_models.load_tagger(source, self.labels, legal)

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[TaggedExample]
    ) -> list[TaggedPrediction]:
        """Tag the words of each sentence from the logits of all of its windows."""
        counts = np.array([len(example.words) for example in examples], np.int64)
        logits, silent = decode_words(outputs["logits"], items, counts, self.pooling)
        offsets = np.r_[0, np.cumsum(counts)]
        # Words without a token get the silent tag, with certainty for the decoding.
        logits[silent] = -np.inf
        logits[silent, self.labels.index(self.silent_tag)] = 0.0
        tags = self._best(logits, offsets, outputs)
        probabilities = softmax(logits)[np.arange(len(tags)), tags]
        probabilities[silent] = 0.0
        names = np.array(self.labels, dtype=object)[tags]
        return [
            TaggedPrediction(tuple(names[start:stop]), probabilities[start:stop])
            for start, stop in pairwise(offsets)
        ]

    def _best(
        self, logits: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64], outputs: Outputs
    ) -> npt.NDArray[np.int64]:
        if self.decoding == "argmax":
            best: npt.NDArray[np.int64] = logits.argmax(1)
            return best
        if self.decoding == "crf":
            start, end, transitions = (outputs[name] for name in ("start", "end", "transitions"))
        else:
            legal = self.legal_tags
            start, end, transitions = (
                np.where(allowed, 0.0, -np.inf)
                for allowed in (legal.start, legal.end, legal.transitions)
            )
        return viterbi(logits, offsets, start, end, transitions)

    def score_names(self, examples: Sequence[TaggedExample]) -> tuple[str, ...]:
        """Return the names of the scores: of entities for BIO tags, else of tags."""
        del examples
        return ENTITY_SCORES if self.scheme == "bio" else TAG_SCORES

    def score(
        self, examples: Sequence[TaggedExample], predictions: Sequence[TaggedPrediction]
    ) -> dict[str, float]:
        """Return scores in percent: of entities, counted by conlleval and strictly; or of tags."""
        gold = [example.tags or () for example in examples]
        predicted = [prediction.tags for prediction in predictions]
        if self.scheme == "bio":
            return scores_of_entities(gold, predicted)
        return scores_of_tags(gold, predicted, self.labels)

    def row_scores(
        self, examples: Sequence[TaggedExample], predictions: Sequence[TaggedPrediction]
    ) -> npt.NDArray[np.float64]:
        """Return each sentence's F1 of entities (1 without any), or accuracy, from 0 to 1."""
        gold = [example.tags or () for example in examples]
        predicted = [prediction.tags for prediction in predictions]
        return row_f1(gold, predicted, entities=self.scheme == "bio")

    def degenerate(self, predictions: Sequence[TaggedPrediction]) -> str | None:
        """Return a warning's text if all words of several rows get one tag; else None."""
        different = {tag for prediction in predictions for tag in prediction.tags}
        if len(different) != 1 or len(predictions) < 2:
            return None
        return f"every word is tagged {different.pop()}: nothing was learned"

    def details(
        self, examples: Sequence[TaggedExample], predictions: Sequence[TaggedPrediction]
    ) -> dict[str, Any]:
        """Return entity types' scores, or the tags' confusion matrix, for the HTML report."""
        gold = [example.tags or () for example in examples]
        predicted = [prediction.tags for prediction in predictions]
        if self.scheme == "bio":
            return entity_details(gold, predicted)
        return plain_details(gold, predicted, self.labels)

    def to_record(self, example: TaggedExample, prediction: TaggedPrediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        found: dict[str, Any] = {self.words: list(example.words)}
        return found | {
            "prediction": list(prediction.tags),
            "probabilities": prediction.probabilities.tolist(),
        }


def _runs(
    items: Items,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the runs of consecutive words in an item; a CRF scores each run as one sequence.

    Words that follow each other in an item, but not in the sentence, are in different runs. Returns
    the runs' offsets, whether each run begins its sentence, and whether it ends its sentence.
    """
    words = items.ragged("words")
    values, owners = words.values, np.repeat(np.arange(len(items)), np.diff(words.offsets))
    borders = np.ones(len(values), np.bool_)
    borders[1:] = (np.diff(owners) != 0) | (np.diff(values) != 1)
    firsts = np.flatnonzero(borders)
    offsets = np.append(firsts, len(values))
    lasts = values[offsets[1:] - 1] if len(firsts) else values[:0]
    total = items.column("num_words")[owners[firsts]]
    return offsets.astype(np.int32), values[firsts] == 0, lasts == total - 1
