"""Tags words, or finds spans of words, by a fine-tuned model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.inputs.records import Record
from encoder_engine.kinds.texts import open_texts
from encoder_engine.prediction.entities import Entity, EntityTask
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.labels import check_labels
from encoder_engine.tasks.prompted_spans import PromptedSpanTask
from encoder_engine.tasks.token_classification import TokenClassificationTask
from encoder_engine.tasks.words.word_task import WordTask
from encoder_engine.vectors.columns import PredictedRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from encoder_engine.prediction.entities import Aggregation
    from encoder_engine.tasks.span_classification import SpanClassificationTask

    Rows = Sequence[str] | Iterable[Sequence[str]]

__all__ = ["SpanTagger", "Tagger"]


class _WordPredictor(Predictor):
    """Predicts tags or spans for sentences that are given as lists of words."""

    def predict(self, sentences: Rows, *, batch_tokens: int = BATCH_TOKENS) -> Any:
        """Return the prediction for each sentence, which is given as a list of words.

        Raises :class:`InputError` for a sentence that is no list. A string is refused as well: a
        list of strings could be one sentence of words or many sentences.
        """
        task = self.task
        assert isinstance(task, WordTask)
        records = []
        rows = [sentences] if isinstance(sentences, str) else from_arrow(sentences)
        for row, words in enumerate(rows):
            if isinstance(words, str) or not hasattr(words, "__iter__"):
                found = "one text" if isinstance(words, str) else f"{words!r:.60}"
                raise InputError(
                    f"sentence {row} is {found}; give a list of words for each sentence, such as "
                    "[text.split()]",
                    row=row,
                )
            records.append(Record({task.words: list(words)}, row=row))
        return self.predict_records(records, batch_tokens=batch_tokens)


class Tagger(_WordPredictor):
    """Predicts a tag of each word, or finds the entities of texts.

    A :class:`~encoder_engine.tasks.token_classification.TaggedPrediction` has the tags and their
    probabilities.
    """

    tasks = ("token-classification",)

    def entities(
        self,
        texts: str | Iterable[str],
        *,
        aggregation: Aggregation = "simple",
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """Find the entities of each text: a list of lists, or the list of a single ``str``.

        aggregation: ``"simple"`` joins neighbouring tokens of a type. ``"first"``, ``"average"``
            and ``"max"`` first give each word one label: that of its first token, as models of
            ``finetune`` were trained; of the mean of its tokens' probabilities; or of its most
            certain token. ``"none"`` gives each token with its whole label.

        An :class:`~encoder_engine.prediction.entities.Entity` has the label, the characters, their
        text and the probability, averaged over the joined tokens; ``O`` is no entity. Labels are
        read as BIO, IOB1, BIOES or BILOU, others as plain types. Entities are those of
        transformers' pipeline, but a text beyond the model's limit is read in windows, to its end.

        Raises :class:`TextError` with the row of a value that is no text, and :class:`InputError`
        for an unknown aggregation.
        """
        assert isinstance(self.task, TokenClassificationTask)
        opened = open_texts(texts)
        found = self.predict_examples(
            list(opened.rows),
            batch_tokens=batch_tokens,
            task=EntityTask.of(self.task, aggregation=aggregation),
        )
        entities = [[one.entity for one in row] for row in found]
        return entities[0] if opened.single else entities

    @property
    def text_task(self) -> EntityTask:
        """The task that finds entities by joining neighbouring tokens of the same type."""
        assert isinstance(self.task, TokenClassificationTask)
        return EntityTask.of(self.task)

    def example(self, row: int, content: Any) -> str:
        """Return the text, an example of :attr:`text_task`.

        Raises :class:`InputError` for anything but a str.
        """
        if not isinstance(content, str):
            raise InputError(f"row {row} is {content!r:.60}; a tagger reads one text", row=row)
        return content

    def columns(self, predictions: list[Any]) -> PredictedRows:
        """Return ``entities``: per text a list of labels, character ranges, texts and scores."""
        rows = [[one.entity._asdict() for one in row] for row in predictions]
        entity = {"label": "string", "start": "int64", "stop": "int64", "text": "string"}
        return PredictedRows(
            columns={"entities": rows}, types={"entities": {**entity, "score": "double"}}
        )


class SpanTagger(_WordPredictor):
    """Predicts spans of words with their types, flat or nested.

    A :class:`~encoder_engine.tasks.span_classification.SpanPrediction` has the spans. A directory
    of the gliner library is loaded too: its :meth:`entities` finds entities of labels given in the
    call.
    """

    tasks = ("span-classification",)

    def entities(
        self,
        texts: str | Iterable[str],
        labels: Sequence[str],
        *,
        threshold: float = 0.5,
        nested: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """Find entities of any labels, by a GLiNER model: a list per text, or a single list.

        labels: such as ``["person", "city"]``.
        threshold: an entity's probability must exceed this.
        nested: entities may contain one another; False: they do not overlap.

        An :class:`~encoder_engine.prediction.entities.Entity` has the label, the characters, their
        text and the probability. Entities are those of gliner's ``predict_entities``, but a text
        beyond the model's limit is read in windows, to its end. A blank text has none.

        Raises :class:`UnsupportedFeatureError` for a model with labels of its own,
        :class:`TextError` with the row of a value that is no text, and :class:`InputError` for no
        label, and for labels that are blank, repeated or too many for the model.
        """
        task = self.task
        if not isinstance(task, PromptedSpanTask):
            own = ", ".join(cast("SpanClassificationTask", task).labels[:4])
            raise UnsupportedFeatureError(
                f"this model has labels of its own ({own}); call predict([text.split()])"
            )
        names = check_labels(labels)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the label {twice!r} is given twice; give each once")
        if not 0.0 <= threshold < 1.0:
            raise InputError(f"threshold must be from 0 to below 1, got {threshold!r}")
        opened = open_texts(texts)
        rows = list(opened.rows)
        task = replace(task, labels=tuple(names), threshold=threshold, nested=nested)
        found = self.predict_examples(rows, batch_tokens=batch_tokens, task=task)
        entities = [
            [
                Entity(one.type, one.start, one.stop, text[one.start : one.stop], one.score)
                for one in r
            ]
            for text, r in zip(rows, found, strict=True)
        ]
        return entities[0] if opened.single else entities

    def example(self, row: int, content: Any) -> Any:
        """Raise :class:`UnsupportedFeatureError`: rows of files are no lists of words."""
        if isinstance(self.task, PromptedSpanTask):
            self.task.read(Record({}, row=row))
        return super().example(row, content)
