"""Loads a fine-tuned model by the class of its task; predicts batches of data engines (Spark)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.embed_batch import BatchStep
from encoder_engine.families.checkpoints.files import fetching, take_directory
from encoder_engine.prediction.chooser import Chooser
from encoder_engine.prediction.classifier import Classifier
from encoder_engine.prediction.predictor import Predictor, model_directory
from encoder_engine.prediction.published import read_published
from encoder_engine.prediction.reader import Reader
from encoder_engine.prediction.tagger import SpanTagger, Tagger
from encoder_engine.strings import from_arrow
from encoder_engine.tasks.task_folder import TASK, load_task

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from encoder_engine.engine.protocol import EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.vectors.columns import PredictedRows

__all__ = ["PredictBatch", "load_predictor"]

_DTYPES = {"double": np.float64, "int64": np.int64}


@fetching
def load_predictor(
    path_or_hub_id: str | os.PathLike[str], device: str = "auto", **options: Any
) -> Predictor:
    """Load a model as :class:`Classifier`, :class:`Tagger`, :class:`Reader`, ..., by its task.

    ``options`` and exceptions: see :meth:`Predictor.from_pretrained`.
    """
    directory = model_directory(take_directory(path_or_hub_id, options))
    is_run = (directory / TASK).is_file()
    saved = load_task(directory) if is_run else read_published(directory, ())
    for kind in (Classifier, Tagger, SpanTagger, Reader, Chooser):
        if saved.task.name in kind.tasks:
            return kind.from_pretrained(directory, device, **options)
    return Predictor.from_pretrained(directory, device, **options)


class PredictBatch(BatchStep):
    """Adds the columns of predictions to a batch: ``PredictBatch(model)({"text": [...]})``.

    The columns are those of :meth:`Predictor.predict_dataset`, such as ``label`` and ``score``.
    ``pair_column``: the column of the second texts of pairs. ``device``, ``dtype``,
    ``quantization`` and ``engine``: see :meth:`Predictor.from_pretrained`. ``hub``: see
    :class:`HubKeywords`. See also :class:`BatchStep`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        text_column: str = "text",
        pair_column: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        quantization: str | None = None,
        engine: EngineChoice = "auto",
        hub: HubKeywords | None = None,
    ) -> None:
        loading: dict[str, Any] = {"dtype": dtype, "quantization": quantization, **(hub or {})}
        super().__init__(model, load_predictor, device=device, engine=engine, **loading)
        self.text_column, self.pair_column = text_column, pair_column

    @property
    def types(self) -> Mapping[str, str | Mapping[str, str]]:
        """The types of the added columns; see :class:`PredictedRows`."""
        found: PredictedRows = self.model.columns([])
        return found.types

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with columns of predictions added: arrays of numbers, else lists.

        Raises :class:`InputError` if a column of texts is missing, or one of predictions exists.
        """
        read = [name for name in (self.text_column, self.pair_column) if name is not None]
        self.check(batch, read, self.types)
        texts = [list(from_arrow(batch[name])) for name in read]
        rows = texts[0] if self.pair_column is None else list(zip(*texts, strict=True))
        model = self.model
        examples = [model.example(number, row) for number, row in enumerate(rows)]
        found = model.columns(model.predict_examples(examples, task=model.text_task)).columns
        columns = {
            name: found[name] if dtype is None else np.array(found[name], dtype)
            for name, dtype in ((name, _DTYPES.get(str(kind))) for name, kind in self.types.items())
        }
        return {**batch, **columns}
