"""Loads a task's model for the engine that is to compute it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from encoder_engine.engine.choosing import (
    EngineRequest,
    choose_modules,
    compiled_engine,
    refuse_quantized_head,
)
from encoder_engine.errors import ChecksumError, UnusedWeightsWarning
from encoder_engine.families.checkpoints.adapters import ADAPTER, weights_directory
from encoder_engine.families.checkpoints.arrays import arrays_sha256
from encoder_engine.opening.recipe import encoder_directory
from encoder_engine.tasks import models
from encoder_engine.tasks.engines.source import CompiledSource
from encoder_engine.tasks.items import SavedModel

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task_folder import SavedTask

__all__ = ["load_task_model"]


def load_task_model(
    saved: SavedTask, directory: Path, request: EngineRequest
) -> CompiledModel | TaskModel:
    """Load a task's model from its directory or that of its adapters.

    Adapters are merged into the encoder of their base. Raises :class:`ChecksumError` if that has
    other weights than in training. Other exceptions: see :meth:`Ranker.from_pretrained` and
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
