"""Loads a fine-tuned model by the class of its task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.prediction.chooser import Chooser
from encoder_engine.prediction.classifier import Classifier
from encoder_engine.prediction.predictor import Predictor, model_directory
from encoder_engine.prediction.published import read_published
from encoder_engine.prediction.reader import Reader
from encoder_engine.prediction.tagger import SpanTagger, Tagger
from encoder_engine.tasks.task_folder import TASK, load_task

if TYPE_CHECKING:
    import os

__all__ = ["load_predictor"]


@fetching
def load_predictor(
    path_or_hub_id: str | os.PathLike[str], device: str = "auto", **options: Any
) -> Predictor:
    """Load a :class:`Classifier`, :class:`Tagger`, :class:`Reader`, ... by what a directory is for.

    ``options`` and exceptions: see :meth:`Predictor.from_pretrained`.
    """
    directory = model_directory(resolve_directory(path_or_hub_id))
    is_run = (directory / TASK).is_file()
    saved = load_task(directory) if is_run else read_published(directory, ())
    for kind in (Classifier, Tagger, SpanTagger, Reader, Chooser):
        if saved.task.name in kind.tasks:
            return kind.from_pretrained(directory, device, **options)
    return Predictor.from_pretrained(directory, device, **options)
