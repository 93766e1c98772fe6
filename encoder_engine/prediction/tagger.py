"""Tags words, or finds spans of them, by a fine-tuned model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError
from encoder_engine.inputs.records import Record
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.words.word_task import WordTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Rows = Sequence[str] | Iterable[Sequence[str]]

__all__ = ["SpanTagger", "Tagger"]


class _WordPredictor(Predictor):
    """Predicts sentences that are split into words."""

    def predict(self, sentences: Rows, *, batch_tokens: int = BATCH_TOKENS) -> Any:
        """Predict each sentence, given as a list of words, or a single one.

        Raises :class:`InputError` for a sentence that is one string, which the caller splits into
        words, or no list.
        """
        task = self.task
        assert isinstance(task, WordTask)
        records = []
        unsplit = isinstance(sentences, str)
        rows = [sentences] if unsplit else list(from_arrow(sentences))
        # A str with white space is a sentence that was not split.
        single = not unsplit and all(isinstance(w, str) and [w] == w.split() for w in rows)
        for row, words in enumerate([rows] if single and rows else rows):
            if isinstance(words, str) or not hasattr(words, "__iter__"):
                found = "one text" if isinstance(words, str) else f"{words!r:.60}"
                raise InputError(
                    f"sentence {row} is {found}; give its words as a list, such as text.split()",
                    row=row,
                )
            records.append(Record({task.words: list(words)}, row=row))
        predictions = self.predict_records(records, batch_tokens=batch_tokens)
        return predictions[0] if single and rows else predictions


class Tagger(_WordPredictor):
    """Predicts a tag of each word.

    A :class:`~encoder_engine.tasks.token_classification.TaggedPrediction` has the tags and their
    probabilities.
    """

    tasks = ("token-classification",)


class SpanTagger(_WordPredictor):
    """Predicts spans of words with their types, flat or nested.

    A :class:`~encoder_engine.tasks.span_classification.SpanPrediction` has the spans.
    """

    tasks = ("span-classification",)
