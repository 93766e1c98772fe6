"""The base of tasks on whole texts or text pairs: columns, windows and the head model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import Logits
from encoder_engine.tasks import engines, models
from encoder_engine.tasks.batching import encode_windows, refuse_no_token, window_items
from encoder_engine.tasks.items import TaskBatch, feature_targets
from encoder_engine.tasks.labels import unlabelled
from encoder_engine.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.inputs.records import Record
    from encoder_engine.models import Encoder
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import Items, SavedModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Tokenizer

__all__ = ["SequenceTask", "TextExample", "mean_of_windows"]

Gold = TypeVar("Gold")
Prediction = TypeVar("Prediction")


@dataclass(frozen=True, slots=True)
class TextExample(Generic[Gold]):
    """A text or a text pair, with its gold value; None: unlabelled."""

    text: str
    pair: str | None = None
    gold: Gold | None = None

    @property
    def content(self) -> tuple[str, str | None]:
        """The text, and the second text of a pair; None: it is a single text."""
        return self.text, self.pair


@dataclass(frozen=True, kw_only=True)
class SequenceTask(Task[TextExample[Gold], Prediction], Generic[Gold, Prediction]):
    """A task on whole texts or pairs of texts, whose head gives logits for each sequence.

    ``text``, ``pair``, ``label``: the columns; ``pair``: None: single texts.
    """

    text: str = "text"
    pair: str | None = None
    label: str = "label"

    # The name of the loss in the log.
    loss_name: ClassVar[str]

    @abstractmethod
    def read_gold(self, record: Record) -> Gold:
        """Return the gold value of a labelled row."""

    @abstractmethod
    def targets(self, golds: Sequence[Gold]) -> npt.NDArray[Any]:
        """Return gold values as an array of targets for the loss, [N, ...]."""

    @property
    @abstractmethod
    def label_names(self) -> tuple[str, ...]:
        """The names of the outputs of the model's head."""

    @property
    @abstractmethod
    def problem_type(self) -> str:
        """``problem_type`` of transformers' config.json, which decides the loss of a head."""

    @abstractmethod
    def loss(self, logits_BC: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the rows of a batch."""

    def read(self, record: Record) -> TextExample[Gold]:
        """Make an example from a row of a file; without a label it is unlabelled."""
        return TextExample(
            record.text(self.text),
            None if self.pair is None else record.text(self.pair),
            self.read_gold(record) if record.has(self.label) else None,
        )

    def unlabelled(self, example: TextExample[Gold]) -> str | None:
        """Return why an example without a gold value cannot be learned; None: it has one."""
        return unlabelled("label", self.label) if example.gold is None else None

    def key(self, example: TextExample[Gold]) -> object:
        """Return the text or texts of an example, by which it is recognised as a duplicate."""
        return example.content

    def gold_key(self, example: TextExample[Gold]) -> object:
        """Return an example's gold value; duplicates with different ones contradict each other."""
        return example.gold

    def encode(
        self, examples: Sequence[TextExample[Gold]], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize examples to items, one per window; all windows of a text have its target."""
        texts = [example.text for example in examples]
        pairs = None
        if self.pair is not None or any(example.pair is not None for example in examples):
            pairs = [example.pair or "" for example in examples]
        encoding = encode_windows(tokenizer, windows, texts, pairs)
        refuse_no_token(encoding, encoding.overflow_to_sample)
        golds = [example.gold for example in examples if example.gold is not None]
        if len(golds) < len(examples):
            return window_items(encoding)
        return window_items(encoding, target=self.targets(golds))

    def batch(self, items: Items) -> TaskBatch:
        """Make the model's input from a batch of items, which are texts or windows."""
        targets = feature_targets(items)
        if "target" in items.columns:
            targets["target"] = items.column("target")
        return TaskBatch(items.rows, targets)

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the task's model from an encoder; its head is random."""
        return models.SequenceModel.new(
            *(encoder, self.label_names, self.problem_type, self.loss_name, self.loss)
        )

    def load_model(self, saved: SavedModel) -> TaskModel:
        """Load the task's model, an encoder with its head, as a PyTorch module."""
        return models.SequenceModel.load(saved, self.loss_name, self.loss)

    def load_compiled(self, source: CompiledSource) -> CompiledModel:
        """Load the task's model for the compiled engine (C++, on a CPU)."""
        engine = source.load_head("sequence-classification", self.label_names)
        return engines.CompiledModel(engine, _logits)


def _logits(engine: CompiledEngine, batch: TaskBatch) -> dict[str, npt.NDArray[Any]]:
    return {"logits": engine.run(batch.rows, Logits())[0]}


def mean_of_windows(outputs: Outputs, items: Items, num_examples: int) -> npt.NDArray[np.float64]:
    """Return each example's mean logits over its windows, float64 [examples, C]."""
    logits = outputs["logits"].astype(np.float64)
    sums = np.zeros((num_examples, logits.shape[1]))
    np.add.at(sums, items.examples, logits)
    counts = np.bincount(items.examples, minlength=num_examples)
    means: npt.NDArray[np.float64] = sums / counts[:, None]
    return means
