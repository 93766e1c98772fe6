"""Loads a GLiNER model: a compiled or a PyTorch encoder, and the layers after it on a CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.engine.choosing import engine_of, torch_engine
from encoder_engine.engine.outputs import TokenStates
from encoder_engine.families.checkpoints.files import open_tensors
from encoder_engine.families.gliner import SETTINGS, split_encoder
from encoder_engine.inference.prompted_spans import (
    PromptedSpanHead,
    WordRows,
    prompted_span_shapes,
)
from encoder_engine.tasks.engines.compiled import CompiledModel
from encoder_engine.tasks.engines.source import read_exactly

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.engine.protocol import Engine
    from encoder_engine.families.gliner import GlinerSettings
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import SavedModel, TaskBatch

__all__ = ["load_prompted", "load_prompted_module"]


def load_prompted(source: CompiledSource, settings: GlinerSettings) -> CompiledModel:
    """Load a GLiNER model with the compiled encoder. Exceptions: see :func:`_load_head`."""
    engine = source.load_encoder()
    head = _load_head(source.directory, settings, engine.spec.width)
    return CompiledModel(engine, partial(_compute, head))


def load_prompted_module(saved: SavedModel, settings: GlinerSettings) -> Any:
    """Load a GLiNER model with PyTorch's encoder. Exceptions: see :func:`_load_head`."""
    module = torch_engine("a GLiNER model by engine='torch'")
    engine = engine_of(module.Encoder.from_pretrained(*saved))
    head = _load_head(Path(saved.directory), settings, engine.spec.width)
    engine.outputs = partial(_compute, head, engine)
    return engine


def _compute(
    head: PromptedSpanHead, engine: Engine, batch: TaskBatch
) -> dict[str, npt.NDArray[Any]]:
    states_TD = engine.run(batch.rows, TokenStates())[0]
    scores = head(states_TD, WordRows(**batch.targets), num_threads=engine.num_threads)
    return {"probabilities": np.concatenate([one.reshape(-1, one.shape[2]) for one in scores])}


def _load_head(directory: Path, settings: GlinerSettings, width: int) -> PromptedSpanHead:
    """Read the layers that follow a GLiNER model's encoder, whose hidden size is ``width``.

    Raises :class:`TensorNamesError`, :class:`TensorShapeError` and
    :class:`NonFiniteWeightsError` for weights that do not fit the settings or are damaged.
    """
    shapes = prompted_span_shapes(settings, width)
    with open_tensors(directory) as tensors:
        weights = read_exactly(directory, split_encoder(tensors)[1], shapes, SETTINGS)
    return PromptedSpanHead(weights, settings)
