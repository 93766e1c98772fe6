"""A stand-in for CUDA graphs on a CPU: records operators, and repeats them at the same addresses.

As in a CUDA graph, whatever the host computed from a batch's lengths while it recorded is repeated
as it was: results of another batch would be wrong.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from encoder_engine.models.captured import encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class RecordedGraph:
    """Holds the operators of a recording, with their arguments and results."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.num_replays = 0

    def replay(self) -> None:
        """Compute every operator again, and write its results where the first ones lie."""
        self.num_replays += 1
        for operator, arguments, keywords, results in self.calls:
            again = operator(*arguments, **keywords)
            for first, new in zip(tree_leaves(results), tree_leaves(again), strict=True):
                if isinstance(first, Tensor) and first.data_ptr() != new.data_ptr():
                    first.copy_(new)


class _Recording(TorchDispatchMode):
    def __init__(self, graph: RecordedGraph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute and record an operator."""
        keywords = kwargs or {}
        results = func(*args, **keywords)
        self._graph.calls.append((func, args, keywords, results))
        return results


class _Stream:
    def wait_stream(self, _other: object) -> None:
        """Wait for nothing: a CPU has one stream."""


@contextmanager
def _record(graph: RecordedGraph, *_: object, **__: object) -> Iterator[None]:
    with _Recording(graph):
        yield


def record_graphs(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Have encoders on the CPU captured by recordings; return the list that will hold them."""
    graphs: list[RecordedGraph] = []

    def make() -> RecordedGraph:
        graphs.append(RecordedGraph())
        return graphs[-1]

    monkeypatch.setattr(encoder, "uses_graphs", lambda _device: True)
    for name, value in {
        "CUDAGraph": make,
        "Stream": _Stream,
        "current_stream": _Stream,
        "graph": _record,
        "graph_pool_handle": lambda: (0, 0),
        "stream": lambda _stream: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return graphs
