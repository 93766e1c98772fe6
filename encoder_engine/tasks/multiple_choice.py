"""Multiple choice: scores each ending of a context; softmax over the endings of a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.tasks import engines, models
from encoder_engine.tasks.labels import softmax, unlabelled
from encoder_engine.tasks.lists import ListTask, encode_lists, list_scores, split_lists

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

__all__ = ["ChoiceExample", "ChoicePrediction", "MultipleChoiceTask"]


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context with its possible endings, and the index of the right one; None: unlabelled."""

    context: str
    endings: tuple[str, ...]
    gold: int | None = None


class ChoicePrediction(NamedTuple):
    """The index of the chosen ending, and the probability and logit of each ending, float64 [n]."""

    choice: int
    probabilities: npt.NDArray[np.float64]
    logits: npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask(ListTask[ChoiceExample, ChoicePrediction]):
    """Chooses one of any number of endings; each is read as ``[CLS] context [SEP] ending [SEP]``.

    ``context``: the column of contexts.
    ``stem``: a column put before every ending, as in SWAG; None: nothing is put before.
    ``endings``: one column of lists, or a column for each ending.
    ``label``: the column with the number of the right ending, from 0.
    """

    name: ClassVar[str] = "multiple-choice"

    context: str = "context"
    stem: str | None = None
    endings: tuple[str, ...] = ("endings",)
    label: str = "label"

    def __post_init__(self) -> None:
        if not self.endings:
            raise ConfigError("task.endings is empty; name a column of lists, or two columns")

    @property
    def main_score(self) -> str:
        """The name of the score that selects the best checkpoint."""
        return "accuracy"

    def read(self, record: Record) -> ChoiceExample:
        """Make an example from a row; raises :class:`RowError` for one ending, or a wrong label."""
        if len(self.endings) == 1:
            endings = record.names_of(self.endings[0])
        else:
            endings = [record.text(column) for column in self.endings]
        if len(endings) < 2:
            record.refuse(f"there are {len(endings)} endings; a choice needs two or more")
        if self.stem is not None:
            stem = record.text(self.stem)
            endings = [f"{stem} {ending}" for ending in endings]
        gold = None
        if record.has(self.label):
            number = record.number_of(self.label)
            if number != int(number) or not 0 <= number < len(endings):
                record.refuse(
                    f"{self.label} is {number:g}; it must be the number of an ending, 0 to "
                    f"{len(endings) - 1}"
                )
            gold = int(number)
        return ChoiceExample(record.text(self.context), tuple(endings), gold)

    def fit(self, examples: Sequence[ChoiceExample]) -> Self:
        """Return the task unchanged: it fits nothing to the training rows."""
        if not examples:
            raise InputError("there is no training row")
        return self

    def unlabelled(self, example: ChoiceExample) -> str | None:
        """Return why an example without a right ending cannot be learned; None: it has one."""
        return unlabelled("label", self.label) if example.gold is None else None

    def key(self, example: ChoiceExample) -> object:
        """Return an example's context and the endings, by which it is recognised as a duplicate."""
        return example.context, example.endings

    def gold_key(self, example: ChoiceExample) -> object:
        """Return the index of the right ending, in which duplicate examples must not differ."""
        return example.gold

    def encode(
        self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize each context with each of its endings, as one item per example."""
        pairs = [[(one.context, ending) for ending in one.endings] for one in examples]
        labels = None
        if all(example.gold is not None for example in examples):
            labels = [[n == one.gold for n in range(len(one.endings))] for one in examples]
        return encode_lists(tokenizer, windows, pairs, labels)

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; its head is random."""
        return models.ListModel.new(encoder, "cross_entropy")

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an encoder with its head, as a PyTorch module."""
        return models.ListModel.load(saved, "cross_entropy")

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        return engines.CompiledModel(source.load_head("multiple-choice", ("score",)), list_scores)

    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[ChoiceExample]
    ) -> list[ChoicePrediction]:
        """Choose the ending with the highest score for each question of a batch."""
        del examples
        return [
            ChoicePrediction(int(logits.argmax()), softmax(logits[None])[0], logits)
            for logits in split_lists(outputs["scores"], items)
        ]

    def score_names(self, examples: Sequence[ChoiceExample]) -> tuple[str, ...]:
        """Return the names of the accuracy and of the mean negative log-likelihood."""
        del examples
        return "accuracy", "nll"

    def score(
        self, examples: Sequence[ChoiceExample], predictions: Sequence[ChoicePrediction]
    ) -> dict[str, float]:
        """Return the accuracy in percent, and the mean negative log-likelihood."""
        right = self.row_scores(examples, predictions)
        logs = [
            -np.log(max(found.probabilities[one.gold], np.finfo(np.float64).tiny))
            for one, found in zip(examples, predictions, strict=True)
            if one.gold is not None
        ]
        return {"accuracy": 100.0 * float(right.mean()), "nll": float(np.mean(logs))}

    def row_scores(
        self, examples: Sequence[ChoiceExample], predictions: Sequence[ChoicePrediction]
    ) -> npt.NDArray[np.float64]:
        """Return 1 for each row whose predicted ending is right, else 0."""
        both = zip(examples, predictions, strict=True)
        return np.array([float(one.gold == found.choice) for one, found in both])

    def degenerate(self, predictions: Sequence[ChoicePrediction]) -> str | None:
        """Return a warning's text if the endings of every row have equal scores; else None."""
        if any(np.ptp(found.logits) > 0.0 for found in predictions):
            return None
        return "all endings have equal scores: nothing was learned"

    def to_record(self, example: ChoiceExample, prediction: ChoicePrediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
        return {
            self.context: example.context,
            "endings": list(example.endings),
            "prediction": prediction.choice,
            "probabilities": prediction.probabilities.tolist(),
        }
