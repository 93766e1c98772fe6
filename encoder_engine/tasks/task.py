"""The interface that all tasks share.

How it works: a task reads the rows of a file as examples, encodes examples to items, collates items
to the input of a micro-batch, and makes the model, whose loss is a sum. Evaluation and prediction
share the rest: the ``outputs`` of a batch of whole examples, computed by a ``TaskModel`` or without
PyTorch by a ``CompiledModel``, ``decode``, and ``score`` once over all predictions. Settings fitted
on dev rows (thresholds, a temperature) are part of the task: ``tuned`` returns a task with them,
and ``revised`` applies them to predictions.

A task is a frozen dataclass. Its fields are its settings: they are read from recipes and stored as
``task.json`` beside the model, so that evaluation and prediction need nothing else. The method
``fit`` stores what follows from the training rows, such as the labels, in further fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.tasks import models

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from encoder_engine.inputs.records import Record
    from encoder_engine.models.encoder import Encoder
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel, TaskBatch
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.text import Tokenizer

    # Arrays of a batch, as numpy, by the names that the task's decode reads.
    Outputs = Mapping[str, npt.NDArray[Any]]

__all__ = ["Task", "Windows"]

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The most tokens of a sequence, and whether longer texts are truncated or cut into windows.

    ``max_length``: the most tokens of a sequence, special ones included.
    ``truncate``: cut longer texts; False: cut them into windows that overlap.
    ``stride``: tokens that a window shares with the next; None: a quarter of ``max_length``.
    """

    max_length: int
    truncate: bool = False
    stride: int | None = None

    @property
    def overlap(self) -> int:
        """Tokens that a window shares with the next."""
        return self.max_length // 4 if self.stride is None else self.stride


class Task(ABC, Generic[Example, Prediction]):
    """A task: how its rows are read, learned, decoded and scored."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def main_score(self) -> str:
        """The score that selects the best checkpoint; higher is better.

        One of :meth:`score_names` of the dev rows, or training is refused.
        """

    def records(self, path: str | os.PathLike[str]) -> Iterator[Record] | None:
        """Read a file of a format of this task's own, such as CoNLL; None: read it as a table."""
        del path
        return None

    @abstractmethod
    def read(self, record: Record) -> Example:
        """Make an example of a row; a row without gold columns gives an unlabelled example.

        Raises :class:`RowError`, with file and row, for a value that cannot be used, and after
        ``fit`` for a gold value that the task does not know, such as another label.
        """

    def of_checkpoint(self, directory: str | os.PathLike[str]) -> Self:
        """Return the task with settings of the checkpoint's directory, such as its pooling."""
        del directory
        return self

    def own_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer to train and save the model with, made of the checkpoint's."""
        return tokenizer

    def digests(self) -> dict[str, str]:
        """Return digests, by setting, of the models that training reads beside the checkpoint."""
        return {}

    @abstractmethod
    def fit(self, examples: Sequence[Example]) -> Self:
        """Return the task fitted to training examples, such as with their labels.

        Raises :class:`InputError` where nothing can be learned from them, such as one class.
        """

    @abstractmethod
    def unlabelled(self, example: Example) -> str | None:
        """Return why a model cannot learn from an example, and how to mend it; None: it can."""

    def unscored(
        self, examples: Sequence[Example], metric: str | None = None
    ) -> tuple[int, str] | None:
        """Return the first example that cannot be scored, and the reason; None: all can.

        ``metric``: the wanted score, which may need rows of one kind; None: any score. By default
        every labelled example can be scored.
        """
        del metric
        reasons = ((place, self.unlabelled(one)) for place, one in enumerate(examples))
        return next(((place, reason) for place, reason in reasons if reason), None)

    @abstractmethod
    def key(self, example: Example) -> object:
        """Return the model's input from an example, to find equal examples."""

    def gold_key(self, example: Example) -> object:
        """Return the gold value of an example, to find equal texts with different gold values."""
        del example
        return None

    @abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, windows: Windows) -> Items:
        """Tokenize examples, with targets where they are labelled."""

    @abstractmethod
    def batch(self, items: Items) -> TaskBatch:
        """Make the input of a batch of these items, as arrays."""

    def collate(self, items: Items) -> Inputs:
        """Return :meth:`batch` as tensors on the CPU, as a :class:`TaskModel` takes it."""
        return models.as_inputs(self.batch(items))

    def feature_offsets(self, items: Items) -> npt.NDArray[np.int64]:
        """Return the offsets of each item's features, int64 [N + 1]; by default one per item."""
        return np.arange(len(items) + 1)

    @abstractmethod
    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the model that training begins with; its head is random."""

    def begin_with(self, model: TaskModel, checkpoint: str | os.PathLike[str]) -> None:
        """Load into a new model what weights the checkpoint has beside its encoder, if any."""
        del model, checkpoint

    @abstractmethod
    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load what ``TaskModel.save_pretrained`` wrote, in evaluation mode."""

    @abstractmethod
    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load a saved model for the compiled engine: on a CPU, without PyTorch."""

    @abstractmethod
    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[Example]
    ) -> list[Prediction]:
        """Predict examples from the outputs of all of their items.

        ``items.examples`` counts from 0 in ``examples``.
        """

    def tuned(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Self:
        """Return the task with the decoding settings fitted on these (dev) rows."""
        del examples, predictions
        return self

    def revised(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Decide predictions again by this task's decoding settings."""
        return list(predictions)

    @abstractmethod
    def score_names(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Return the names of the scores that :meth:`score` gives of these examples."""

    @abstractmethod
    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Score the predictions of labelled examples, over all rows at once."""

    def groups(self, examples: Sequence[Example]) -> npt.NDArray[np.int64]:
        """Return each row's group for the bootstrap, int64 [N]; by default each row is its own."""
        return np.arange(len(examples))

    def resampling(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> Callable[[npt.NDArray[np.int64]], dict[str, float]]:
        """Return a function from row numbers, with repeats, to the scores of these rows.

        For the bootstrap; by default it scores the drawn rows.
        """

        def score(rows: npt.NDArray[np.int64]) -> dict[str, float]:
            drawn = rows.tolist()
            return self.score([examples[n] for n in drawn], [predictions[n] for n in drawn])

        return score

    @abstractmethod
    def row_scores(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> npt.NDArray[np.float64]:
        """Return a score of each row, [N], for paired tests of two systems."""

    def degenerate(self, predictions: Sequence[Prediction]) -> str | None:
        """Return why a model learned nothing, such as one class everywhere; None: it did."""
        del predictions
        return None

    def details(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, Any]:
        """Return further content of the run's page, such as a confusion matrix."""
        del examples, predictions
        return {}

    @abstractmethod
    def to_record(self, example: Example, prediction: Prediction) -> dict[str, Any]:
        """Return the line that ``predict`` writes for an example."""
