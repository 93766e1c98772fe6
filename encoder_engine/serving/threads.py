"""Divides the threads of models among lanes that compute side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.engines.choosing import torch_engine
from encoder_engine.embedding.static.parts import StaticEngine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.serving.models import ServedModel

__all__ = ["SharedThreads", "shared_threads"]


class SharedThreads:
    """The threads of models, before and while lanes share them."""

    def __init__(self, models: list[Any], lanes: int) -> None:
        self._models, self._lanes = models, lanes
        self._before: list[int] = []

    def share(self) -> None:
        """Give a call of each model the threads of one lane."""
        if self._lanes == 1 or self._before:
            return
        self._before = [model.engine.num_threads for model in self._models]
        for model, threads in zip(self._models, self._before, strict=True):
            _set_threads(model, max(1, threads // self._lanes))

    def restore(self) -> None:
        """Give the models their threads back."""
        for model, threads in zip(self._models, self._before, strict=False):
            _set_threads(model, threads)
        self._before = []


def shared_threads(models: Iterable[ServedModel], lanes: int) -> SharedThreads:
    """Return the threads of models that so many lanes share."""
    distinct = {id(served.parts): served.parts for served in models}
    return SharedThreads(list(distinct.values()), lanes)


def _set_threads(model: Any, threads: int) -> None:
    engine = model.engine
    if isinstance(engine, StaticEngine):
        model.engine = replace(engine, num_threads=threads)
    elif engine.name == "compiled":
        engine.encoder.num_threads = threads
    else:
        # PyTorch's threads are those of the process.
        torch_engine("a lane").set_num_threads(threads)
