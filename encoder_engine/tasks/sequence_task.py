"""The base of tasks on whole texts: texts and pairs, windows, and the head model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch

from encoder_engine import ops
from encoder_engine.dataclass import dataclass
from encoder_engine.models.heads import SequenceClassification
from encoder_engine.models.training_model import Inputs, LossSum
from encoder_engine.packing import Sequences
from encoder_engine.tasks.batching import (
    FEATURES,
    encode_windows,
    feature_targets,
    packed_batch,
    window_items,
)
from encoder_engine.tasks.heads import new_head_model
from encoder_engine.tasks.labels import unlabelled
from encoder_engine.tasks.task import Task, TaskModel

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.inputs.records import Record
    from encoder_engine.models import Encoder
    from encoder_engine.models.heads import HeadModel
    from encoder_engine.tasks.items import Items
    from encoder_engine.tasks.task import Outputs, Windows
    from encoder_engine.text import Tokenizer

__all__ = ["SequenceModel", "SequenceTask", "TextExample", "mean_of_windows"]

Gold = TypeVar("Gold")
Prediction = TypeVar("Prediction")


@dataclass(frozen=True, slots=True)
class TextExample(Generic[Gold]):
    """A text, or a pair of texts, with its gold value; None: unlabelled."""

    text: str
    pair: str | None = None
    gold: Gold | None = None

    @property
    def content(self) -> tuple[str, str | None]:
        """The text, and the other text of a pair."""
        return self.text, self.pair


@dataclass(frozen=True, kw_only=True)
class SequenceTask(Task[TextExample[Gold], Prediction], Generic[Gold, Prediction]):
    """A task on whole texts or pairs of texts, whose head reads one vector per sequence.

    ``text``, ``pair``, ``label``: the columns; ``pair``: None: single texts.
    """

    text: str = "text"
    pair: str | None = None
    label: str = "label"

    # The name of the loss in the log.
    loss_name: ClassVar[str]

    @abstractmethod
    def read_gold(self, record: Record) -> Gold:
        """Return the gold value of a row that has one."""

    @abstractmethod
    def targets(self, golds: Sequence[Gold]) -> npt.NDArray[Any]:
        """Return the targets of examples, [N, ...]."""

    @property
    @abstractmethod
    def label_names(self) -> tuple[str, ...]:
        """The names of the head's outputs."""

    @property
    @abstractmethod
    def problem_type(self) -> str:
        """The kind of the head, as transformers' configurations name it."""

    @abstractmethod
    def loss(self, logits_BC: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the rows of a batch."""

    def read(self, record: Record) -> TextExample[Gold]:
        """Make an example of a row; one without a label is unlabelled."""
        return TextExample(
            record.text(self.text),
            None if self.pair is None else record.text(self.pair),
            self.read_gold(record) if record.has(self.label) else None,
        )

    def unlabelled(self, example: TextExample[Gold]) -> str | None:
        """Return why an example without a gold value is refused."""
        return unlabelled("label", self.label) if example.gold is None else None

    def key(self, example: TextExample[Gold]) -> object:
        """Return the text, or both texts."""
        return example.content

    def gold_key(self, example: TextExample[Gold]) -> object:
        """Return the gold value, to find equal texts with different ones."""
        return example.gold

    def encode(
        self, examples: Sequence[TextExample[Gold]], tokenizer: Tokenizer, windows: Windows
    ) -> Items:
        """Tokenize examples; every window of a long text has the text's target."""
        texts = [example.text for example in examples]
        pairs = None if self.pair is None else [example.pair or "" for example in examples]
        encoding = encode_windows(tokenizer, windows, texts, pairs)
        golds = [example.gold for example in examples if example.gold is not None]
        if len(golds) < len(examples):
            return window_items(encoding)
        return window_items(encoding, target=self.targets(golds))

    def collate(self, items: Items) -> Inputs:
        """Make the input of a batch of these items."""
        targets = feature_targets(items)
        if "target" in items.columns:
            targets["target"] = torch.from_numpy(items.column("target"))
        return Inputs(packed_batch(items.rows), targets)

    def make_model(self, encoder: Encoder) -> TaskModel:
        """Make the model with a random head."""
        names = self.label_names
        model = new_head_model(SequenceClassification, encoder, names)
        model.config["problem_type"] = self.problem_type
        return SequenceModel(model, self.loss_name, self.loss)

    def load_model(
        self,
        directory: str | os.PathLike[str],
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
    ) -> TaskModel:
        """Load an encoder with its head."""
        model = SequenceClassification.from_pretrained(directory, device, dtype)
        return SequenceModel(model, self.loss_name, self.loss)


class SequenceModel(TaskModel):
    """A head model of whole texts, and the loss of its logits."""

    def __init__(
        self,
        model: SequenceClassification,
        loss_name: str,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.encoder, self.model = model.encoder, model
        self.weights = {loss_name: 1.0}
        self._loss_name, self._loss = loss_name, loss
        self.train(model.training)

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoder."""
        return (self.encoder,)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        """Return the number of rows."""
        return {self._loss_name: len(inputs.batch.sequences)}

    def features(self, inputs: Inputs) -> Tensor:
        """Compute the vector of each sequence that the pooler or the head reads, [B, D]."""
        return sequence_features(self.model, inputs)

    def forward(self, inputs: Inputs) -> dict[str, LossSum]:
        """Return the summed loss of the rows."""
        logits = sequence_logits(self.model, inputs)
        total = self._loss(logits, inputs.targets["target"])
        return {self._loss_name: LossSum(total, len(logits))}

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> dict[str, npt.NDArray[Any]]:
        """Compute ``logits``, float32 or float64 [B, C]."""
        return {"logits": sequence_logits(self.model, inputs).cpu().numpy()}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write encoder and head in transformers' layout."""
        self.model.save_pretrained(directory)


def sequence_features(model: HeadModel, inputs: Inputs) -> Tensor:
    """Compute the vector of each sequence that the pooler or the head reads, [B, D]."""
    output = model.encode(inputs.batch)
    mode: ops.PoolingMode = "mean" if model.rows == "mean" else "cls"
    return ops.pooling(output.last_hidden_state, output.sequences, mode=mode)


def sequence_logits(model: HeadModel, inputs: Inputs) -> Tensor:
    """Compute a head's logits of each sequence [B, C], from cached vectors if there are any."""
    vectors_BD = inputs.targets.get(FEATURES)
    if vectors_BD is None:
        return full_precision(model(inputs.batch))
    if model.rows == "pooled":
        assert model.encoder.pooler is not None
        offsets = torch.arange(len(vectors_BD) + 1, dtype=torch.int32, device=vectors_BD.device)
        vectors_BD = model.encoder.pooler(vectors_BD, Sequences(offsets))
    return full_precision(model.head(vectors_BD))


def full_precision(logits: Tensor) -> Tensor:
    """Return 16-bit logits as float32, so that losses under autocast are float32."""
    return logits.float() if logits.element_size() < 4 else logits


def mean_of_windows(outputs: Outputs, items: Items, num_examples: int) -> npt.NDArray[np.float64]:
    """Return each example's mean logits over its windows, float64 [examples, C]."""
    logits = outputs["logits"].astype(np.float64)
    sums = np.zeros((num_examples, logits.shape[1]))
    np.add.at(sums, items.examples, logits)
    counts = np.bincount(items.examples, minlength=num_examples)
    means: npt.NDArray[np.float64] = sums / counts[:, None]
    return means
