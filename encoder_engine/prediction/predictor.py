"""The base class of predictors: a fine-tuned model with its task's encoding and decoding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from encoder_engine.engine.choosing import EngineRequest
from encoder_engine.errors import ConfigError, TruncationWarning, UnsupportedFeatureError
from encoder_engine.prediction.loading import load_task_model
from encoder_engine.tasks.engines.choosing import task_engine
from encoder_engine.tasks.predicting import predict_batches
from encoder_engine.tasks.task_folder import TableFormat, load_task
from encoder_engine.text import Tokenizer
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import torch

    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.inputs.records import Record
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Task, Windows

__all__ = ["Predictor", "model_directory"]

BATCH_TOKENS = 8192


def model_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory of the model, given a run's folder or the model directory itself."""
    directory = Path(path)
    inner = directory / "model"
    return inner if inner.is_dir() else directory


class Predictor:
    """A fine-tuned model with its task, of any kind, and its tokenizer.

    ``model``, ``engine``: on a CPU by default the compiled engine without PyTorch, else a module.
    ``task``: with the labels, columns and decoding settings of training.
    ``tables``: the form of the .csv and .tsv files of training.
    """

    # The tasks that a class predicts; empty: all.
    tasks: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        model: CompiledModel | TaskModel,
        task: Task[Any, Any],
        tokenizer: Tokenizer,
        windows: Windows,
        tables: TableFormat | None = None,
    ) -> None:
        self.engine, self.task = task_engine(model), task
        self.model: Any = model if self.engine is model else cast("TaskModel", model).eval()
        self.tokenizer = tokenizer.fitted_to(self.engine.spec.embedding.vocab_size)
        self.windows = windows
        self.tables = tables or TableFormat()

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
    ) -> Self:
        """Load a fine-tuned model from a ``finetune`` run's folder, its ``model`` or ``adapter``.

        ``quantization="int8"`` rounds the blocks' dense layers, not the head, on a CPU. Raises
        :class:`ConfigError` for a directory without task.json, or with a model for another task,
        and :class:`ChecksumError` for adapters whose checkpoint has other weights by now. Other
        options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        directory = model_directory(path)
        saved = load_task(directory)
        if cls.tasks and saved.task.name not in cls.tasks:
            raise ConfigError(
                f"{directory} is a model for {saved.task.name}, {cls.__name__} predicts "
                f"{', '.join(cls.tasks)}; load it by the class of its task"
            )
        model = load_task_model(saved, directory, request)
        tokenizer = Tokenizer.from_pretrained(directory)
        return cls(model, saved.task, tokenizer, saved.windows, saved.tables)

    def __repr__(self) -> str:
        """Return a line with the task, the family and the engine."""
        engine = self.engine
        return (
            f"{type(self).__name__}({self.task.name}: {engine.spec.model_type}, "
            f"{engine.quantization or engine.dtype}, {engine.name} on {engine.device})"
        )

    @property
    def module(self) -> TaskModel:
        """The model as a PyTorch module; raises :class:`UnsupportedFeatureError` if it is none."""
        if self.engine is self.model:
            raise UnsupportedFeatureError(
                "this model was loaded for the compiled engine, which has no modules; load it with "
                "engine='torch'"
            )
        found: TaskModel = self.model
        return found

    def predict_examples(
        self, examples: Sequence[Any], *, batch_tokens: int = BATCH_TOKENS
    ) -> list[Any]:
        """Return the prediction of each example, computed as in evaluation during training.

        Warns of texts that are cut. Raises :class:`NonFiniteVectorError` where the model computes
        NaN or infinity.
        """
        if not examples:
            return []
        items = self.task.encode(examples, self.tokenizer, self.windows)
        if items.num_truncated:
            warn_caller(
                TruncationWarning(
                    f"{items.num_truncated} of {len(examples)} rows have more tokens than the "
                    "model reads, and were cut; shorten or split their texts",
                    num_truncated=items.num_truncated,
                )
            )
        parts = predict_batches(
            *(self.engine, self.task, items, examples), batch_tokens=batch_tokens, finite=True
        )
        return [prediction for _, part in parts for prediction in part]

    def predict_records(
        self, records: Iterable[Record], *, batch_tokens: int = BATCH_TOKENS
    ) -> list[Any]:
        """Return the prediction of each row."""
        examples = [self.task.read(record) for record in records]
        return self.predict_examples(examples, batch_tokens=batch_tokens)
