"""The base of predictors: a fine-tuned model with the encoding and decoding of its task."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from encoder_engine.embedding.library_keywords import check_names
from encoder_engine.engine.choosing import (
    EngineRequest,
    choose_modules,
    compiled_engine,
    refuse_quantized_head,
)
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import (
    ChecksumError,
    TruncationWarning,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.families.checkpoints.adapters import ADAPTER, weights_directory
from encoder_engine.families.checkpoints.arrays import arrays_sha256
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.families.config import read_config
from encoder_engine.families.heads import check_ending
from encoder_engine.jobs.keywords import JobKeywords, run_over_files
from encoder_engine.kinds.model import Model
from encoder_engine.opening.recipe import encoder_directory
from encoder_engine.prediction.files import Predictions
from encoder_engine.prediction.published import PREDICTORS, read_published
from encoder_engine.tasks import models
from encoder_engine.tasks.engines.engine import task_engine
from encoder_engine.tasks.engines.source import CompiledSource
from encoder_engine.tasks.items import SavedModel
from encoder_engine.tasks.predicting import predict_batches
from encoder_engine.tasks.sequence_task import SequenceTask
from encoder_engine.tasks.task_folder import TASK, TableFormat, load_task
from encoder_engine.text import Tokenizer
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from typing import Unpack

    import torch

    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.inputs.records import Record
    from encoder_engine.jobs.keywords import Paths
    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Task, Windows
    from encoder_engine.tasks.task_folder import SavedTask
    from encoder_engine.vectors.columns import PredictedRows

__all__ = ["Predictor", "model_directory"]

BATCH_TOKENS = 8192


def model_directory(path: str | os.PathLike[str]) -> Path:
    """Return the directory of the model, given a run's folder or the model directory itself."""
    directory = Path(path)
    inner = directory / "model"
    return inner if inner.is_dir() else directory


class Predictor(Model):
    """A fine-tuned model with its task and its tokenizer.

    ``model``, ``engine``: by default the compiled engine on a CPU, without PyTorch; else a PyTorch
    module.
    ``task``: the task, with the labels, columns and decoding settings of training.
    ``windows``: the most tokens of a sequence, and how longer texts are read.
    ``tables``: the form of the .csv and .tsv files of training.
    ``is_published``: the model was not trained by this package; its config.json tells the task.
    """

    is_published = False

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
        self.memory_limit = MemoryLimit()
        self.max_seq_length = windows.max_length

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        tokenizer: Tokenizer | None = None,
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a model that a ``finetune`` run or transformers saved.

        path_or_hub_id: a run's folder, its ``model`` or ``adapter``, or a directory or hub id of a
            model for sequence classification, token classification, question answering or multiple
            choice.
        tokenizer: replaces the directory's.

        ``quantization="int8"`` rounds the blocks' dense layers, not the head, on a CPU. Raises
        :class:`UnsupportedFeatureError` for a model of another head, which names the class that
        loads it, or of another library, and :class:`ChecksumError` for adapters whose base
        checkpoint has changed. Other options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        directory = model_directory(resolve_directory(path_or_hub_id, **hub))
        is_published = not (directory / TASK).is_file()
        saved = read_published(directory, cls.tasks) if is_published else load_task(directory)
        if cls.tasks and saved.task.name not in cls.tasks:
            raise UnsupportedFeatureError(
                f"{directory} is a model for {saved.task.name}; load it by "
                f"{PREDICTORS.get(saved.task.name, 'the class of its kind of vectors')}"
                ".from_pretrained"
            )
        model = load_task_model(saved, directory, request)
        tokenizer = tokenizer or Tokenizer.from_pretrained(directory)
        if is_published and isinstance(saved.task, SequenceTask):
            config = read_config(weights_directory(directory))
            check_ending(config, tokenizer.encode("").tolist())
        found = cls(model, saved.task, tokenizer, saved.windows, saved.tables)
        found.is_published = is_published
        return found.loaded_from(directory, request)

    @property
    def prompts(self) -> dict[str, str]:
        """No prompts: tasks read their texts without a prompt."""
        return {}

    def kinds(self) -> dict[str, Kind]:
        """Return the kind of results ``predictions``, the only one; see :meth:`Model.kinds`."""
        return {"predictions": Predictions(self)}

    @property
    def text_task(self) -> Task[Any, Any]:
        """The task that predicts rows of files, which are texts or text pairs."""
        return self.task

    def example(self, row: int, content: Any) -> Any:
        """Make an example of :attr:`text_task` from a text, or from a pair of texts.

        Raises :class:`InputError` with the row, and :class:`UnsupportedFeatureError` if the task's
        rows have further fields.
        """
        del row, content
        raise UnsupportedFeatureError(
            f"{type(self).__name__} reads rows of more than a text or a pair of texts; predict "
            "them by encoder-engine predict, into .jsonl"
        )

    def columns(self, predictions: list[Any]) -> PredictedRows:
        """Return predictions as the columns of a table: values by name, and their types.

        Raises :class:`UnsupportedFeatureError` for a class whose predictions have no columns.
        """
        del predictions
        raise UnsupportedFeatureError(f"{type(self).__name__} has no columns of predictions")

    def predict_dataset(
        self,
        inputs: Paths,
        output: str | os.PathLike[str],
        *,
        pair_column: str | None = None,
        **options: Unpack[JobKeywords],
    ) -> DatasetSummary:
        """Predict files of any size into a table, or a folder of shards, in constant memory.

        A second call resumes after the last finished shard of a folder. ``column`` and
        ``pair_column`` name the columns of the texts. Other options: see
        :meth:`Embedder.encode_dataset`.
        """
        check_names("predict_dataset", options, JobKeywords)
        return run_over_files(self.kind, inputs, output, options, pair_column=pair_column)

    def __repr__(self) -> str:
        """Return a line with the task, the model's family, its precision, and the engine."""
        engine = self.engine
        return (
            f"{type(self).__name__}({self.task.name}: {engine.spec.model_type}, "
            f"{engine.quantization or engine.dtype}, {engine.name} on {engine.device})"
        )

    @property
    def module(self) -> TaskModel:
        """The model as a PyTorch module; raises :class:`UnsupportedFeatureError` without one."""
        if self.engine is self.model and self.engine.name == "torch":
            raise UnsupportedFeatureError(
                "of this model PyTorch computes the encoder alone: engine.encoder"
            )
        if self.engine is self.model:
            raise UnsupportedFeatureError(
                "this model was loaded for the compiled engine, which has no modules; load it with "
                "engine='torch'"
            )
        found: TaskModel = self.model
        return found

    def predict_examples(
        self,
        examples: Sequence[Any],
        *,
        batch_tokens: int = BATCH_TOKENS,
        task: Task[Any, Any] | None = None,
        windows: Windows | None = None,
    ) -> list[Any]:
        """Return the prediction of each example, computed as in evaluation during training.

        ``task``, ``windows``: replace the model's.

        Warns of texts that are cut. Raises :class:`NonFiniteVectorError` where the model computes
        NaN or infinity.
        """
        if not examples:
            return []
        task = task or self.task
        items = task.encode(examples, self.tokenizer, windows or self.windows)
        if items.num_truncated:
            warn_caller(
                TruncationWarning(
                    f"{items.num_truncated} of {len(examples)} rows have more tokens than the "
                    "model reads, and were cut; shorten or split their texts",
                    num_truncated=items.num_truncated,
                )
            )
        parts = predict_batches(
            self.engine, task, items, examples, batch_tokens=batch_tokens, finite=True
        )
        return [prediction for _, part in parts for prediction in part]

    def predict_records(
        self, records: Iterable[Record], *, batch_tokens: int = BATCH_TOKENS
    ) -> list[Any]:
        """Return the prediction for each row of a file."""
        examples = [self.task.read(record) for record in records]
        return self.predict_examples(examples, batch_tokens=batch_tokens)


def load_task_model(
    saved: SavedTask, directory: Path, request: EngineRequest
) -> CompiledModel | TaskModel:
    """Load the model of a task from its directory, or from a directory of LoRA adapters.

    Adapters are merged into the encoder of their base. Raises :class:`ChecksumError` if the encoder
    has other weights than in training. Other exceptions: see :meth:`Ranker.from_pretrained` and
    :meth:`CompiledSource.read_beside`.
    """
    task = saved.task
    module = choose_modules(encoder_directory(directory), request)
    if module is not None:
        refuse_quantized_head(directory, request)
    has_adapter = (directory / ADAPTER).is_file()
    if has_adapter and saved.base_sha256 is not None:
        _check_base(directory, saved.base_sha256, compiled=module is None)
    if module is None:
        return task.load_compiled(CompiledSource(directory=directory, request=request))
    if has_adapter:
        return models.load_adapted_model(
            task.make_model, directory, device=request.device, dtype=request.dtype
        )
    return task.load_model(SavedModel(directory, request.device, request.dtype))


def _check_base(directory: Path, expected: str, *, compiled: bool) -> None:
    base = weights_directory(directory)
    # The digest is of the weights as training loaded them, in whatever files they lie.
    if compiled:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnusedWeightsWarning)
            engine = compiled_engine(base, EngineRequest(dtype="float32"))
        found = arrays_sha256(engine.encoder.parameters())
    else:
        found = models.encoder_sha256(base)
    if found != expected:
        raise ChecksumError(
            f"the adapter in {directory} was trained on other weights than {base} has now; put the "
            "former ones back, or load the run's folder 'model', which needs no checkpoint"
        )
