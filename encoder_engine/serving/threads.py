"""Counts the threads that a server may use, and divides the threads of models among lanes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from encoder_engine.engine.choosing import torch_engine
from encoder_engine.inference.options import check_threads
from encoder_engine.quota import cpu_quota

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.serving.models import ServedModel

__all__ = ["SharedThreads", "available_threads", "shared_threads"]


def available_threads() -> int:
    """Return the number of cores that this process may use, within the container's quota.

    With more running threads than the quota, the kernel stops all of them for the rest of each 100
    ms.
    """
    quota = cpu_quota()
    cores = check_threads(None)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


class SharedThreads:
    """Divides models' threads among lanes (threads that compute batches), and undoes that."""

    def __init__(self, models: list[Any], lanes: int) -> None:
        self._models, self._lanes = models, lanes
        self._before: list[int] = []

    def share(self) -> None:
        """Set each model's number of threads to the share of one lane."""
        if self._lanes == 1 or self._before:
            return
        self._before = [model.engine.num_threads for model in self._models]
        for model, threads in zip(self._models, self._before, strict=True):
            _set_threads(model, max(1, threads // self._lanes))

    def restore(self) -> None:
        """Set each model's number of threads to what it was before :meth:`share`."""
        for model, threads in zip(self._models, self._before, strict=False):
            _set_threads(model, threads)
        self._before = []


def shared_threads(models: Iterable[ServedModel], lanes: int) -> SharedThreads:
    """Return the :class:`SharedThreads` of models and of their embedders of queries.

    An engine that several of them share occurs once, so that its threads are divided once.
    """
    found = [served.model for served in models]
    # Queries may have a model of their own.
    found += [queries for model in found if (queries := getattr(model, "queries", None))]
    distinct = {id(model.engine): model for model in found}
    return SharedThreads(list(distinct.values()), lanes)


def _set_threads(model: Any, threads: int) -> None:
    engine = model.engine
    if engine.name == "static":
        model.engine = replace(engine, num_threads=threads)
    elif engine.name == "compiled":
        engine.encoder.num_threads = threads
    else:
        # PyTorch's threads are those of the process.
        torch_engine("a lane").set_num_threads(threads)
