"""The interface that all fine-tuning tasks share.

How it works: a task reads the rows of a file as examples, and tokenizes examples to items: one
each, or one for each window of a long text. It batches items to the input of a micro-batch, and
makes the model, whose loss is a sum. Evaluation and prediction share the rest: a ``TaskModel``, or
a ``CompiledModel`` without PyTorch, computes the ``outputs`` of a batch of whole examples;
``decode`` makes predictions of them; and ``score`` scores all predictions at once. Settings fitted
on dev rows (thresholds, a temperature) are part of the task: ``tuned`` returns a task with fitted
settings, and ``revised`` applies them to predictions.

A task is a frozen dataclass. Its fields are its settings: they are read from recipes and stored as
``task.json`` beside the model, so that evaluation and prediction need nothing else. The method
``fit`` stores what the training rows determine, such as the labels, in further fields.
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

    ``max_length``: the most tokens of a sequence, special tokens included.
    ``truncate``: drop the tokens beyond ``max_length``; False: cut the text into overlapping
    windows.
    ``stride``: tokens that a window shares with the next; None: a quarter of ``max_length``.
    """

    max_length: int
    truncate: bool = False
    stride: int | None = None

    @property
    def overlap(self) -> int:
        """The number of tokens that a window of a text shares with the next."""
        return self.max_length // 4 if self.stride is None else self.stride


class Task(ABC, Generic[Example, Prediction]):
    """A fine-tuning task: how rows of files are read, learned, predicted and scored."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def main_score(self) -> str:
        """The name of the score by which the best checkpoint is selected, the highest by default.

        Training is refused unless :meth:`score_names` of the dev rows contains this name.
        """

    def records(self, path: str | os.PathLike[str]) -> Iterator[Record] | None:
        """Yield the rows of a file in a format of this task, such as CoNLL; None: it is a table."""
        del path
        return None

    @abstractmethod
    def read(self, record: Record) -> Example:
        """Make an example from a row; a row without gold columns gives an unlabelled example.

        Raises :class:`RowError`, with file and row, for a value that cannot be used, and after
        ``fit`` for a gold value that the task does not know, such as another label.
        """

    def of_checkpoint(self, directory: str | os.PathLike[str]) -> Self:
        """Return the task with settings that the checkpoint's directory states, such as pooling."""
        del directory
        return self

    def own_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer for training, saved with the model: by default the checkpoint's."""
        return tokenizer

    def digests(self) -> dict[str, str]:
        """Return digests of further models that training reads, by the setting that names them."""
        return {}

    @abstractmethod
    def fit(self, examples: Sequence[Example]) -> Self:
        """Return the task with what the training examples determine, such as the labels.

        Raises :class:`InputError` where nothing can be learned, such as from a single class.
        """

    @abstractmethod
    def unlabelled(self, example: Example) -> str | None:
        """Return why a model cannot learn from an example, and how to mend that; None: it can."""

    def unscored(
        self, examples: Sequence[Example], metric: str | None = None
    ) -> tuple[int, str] | None:
        """Return the index of the first example that cannot be scored, and why; None: all can.

        ``metric``: the wanted score, which may need rows of one kind; None: any score. By default
        every labelled example can be scored.
        """
        del metric
        reasons = ((place, self.unlabelled(one)) for place, one in enumerate(examples))
        return next(((place, reason) for place, reason in reasons if reason), None)

    @abstractmethod
    def key(self, example: Example) -> object:
        """Return the model's input in an example; examples with equal inputs are duplicates."""

    def gold_key(self, example: Example) -> object:
        """Return an example's gold value; duplicates with different ones contradict each other."""
        del example
        return None

    @abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, windows: Windows) -> Items:
        """Tokenize examples to items, with targets where all examples are labelled."""

    @abstractmethod
    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input from a batch of these items, as arrays."""

    def collate(self, items: Items) -> Inputs:
        """Return :meth:`batch` as tensors on the CPU, as a :class:`TaskModel` takes it."""
        return models.as_inputs(self.batch(items))

    def feature_offsets(self, items: Items) -> npt.NDArray[np.int64]:
        """Return where each item's rows begin among a frozen encoder's cached outputs, [N + 1].

        The last entry is the number of all rows. By default an item has one row.
        """
        return np.arange(len(items) + 1)

    @abstractmethod
    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the model that training begins with, from an encoder; its head is random."""

    def begin_with(self, model: TaskModel, checkpoint: str | os.PathLike[str]) -> None:
        """Load weights of the checkpoint that are not its encoder's, if any, into a new model."""
        del model, checkpoint

    @abstractmethod
    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load a model that ``TaskModel.save_pretrained`` wrote, in evaluation mode."""

    @abstractmethod
    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load a saved model for the compiled engine, which is C++ on a CPU, without PyTorch."""

    @abstractmethod
    def decode(
        self, outputs: Outputs, items: Items, examples: Sequence[Example]
    ) -> list[Prediction]:
        """Make the predictions for examples from the model's outputs for all of their items.

        ``items.examples`` are indices into ``examples``.
        """

    def tuned(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Self:
        """Return the task with decoding settings, such as thresholds, fitted on these dev rows."""
        del examples, predictions
        return self

    def revised(self, predictions: Sequence[Prediction]) -> list[Prediction]:
        """Return the predictions with this task's decoding settings applied."""
        return list(predictions)

    @abstractmethod
    def score_names(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """Return the names of the scores that :meth:`score` computes for these examples."""

    @abstractmethod
    def score(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Return the scores of predictions for labelled examples, over all rows at once."""

    def groups(self, examples: Sequence[Example]) -> npt.NDArray[np.int64]:
        """Return the group of each row, int64 [N]; the bootstrap draws whole groups of rows.

        By default each row is a group.
        """
        return np.arange(len(examples))

    def resampling(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> Callable[[npt.NDArray[np.int64]], dict[str, float]]:
        """Return a function from the row indices of a bootstrap sample to the sample's scores.

        A row may be drawn more than once. By default, :meth:`score` scores the drawn rows alone.
        """

        def score(rows: npt.NDArray[np.int64]) -> dict[str, float]:
            drawn = rows.tolist()
            return self.score([examples[n] for n in drawn], [predictions[n] for n in drawn])

        return score

    @abstractmethod
    def row_scores(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> npt.NDArray[np.float64]:
        """Return one score per row, [N], for paired significance tests of two models."""

    def degenerate(self, predictions: Sequence[Prediction]) -> str | None:
        """Return a warning's text if predictions show that nothing was learned; else None."""
        del predictions
        return None

    def details(
        self, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> dict[str, Any]:
        """Return further values for a run's ``report.json``, such as a confusion matrix."""
        del examples, predictions
        return {}

    @abstractmethod
    def to_record(self, example: Example, prediction: Prediction) -> dict[str, Any]:
        """Return an example with its prediction as the JSON object that ``predict`` writes."""
