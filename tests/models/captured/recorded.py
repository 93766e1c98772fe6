"""A stand-in for CUDA graphs on a CPU: records operators, and repeats them at the same addresses.

As in a CUDA graph, whatever the host computed from a batch's lengths while it recorded is repeated
as it was: results of another batch would be wrong. What a recording writes is put back as it ends,
because a capture computes nothing.
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
    from types import ModuleType

    import pytest


class RecordedGraph:
    """Holds the operators of a recording, with their arguments and results."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.num_replays = 0

    def replay(self) -> None:
        """Compute every operator again, and write its results where the first ones lie."""
        self.num_replays += 1
        # Autograd has recorded nothing of these, and a CUDA graph knows none of it.
        with torch._C._AutoDispatchBelowAutograd():
            for operator, arguments, keywords, results in self.calls:
                again = operator(*arguments, **keywords)
                for first, new in zip(tree_leaves(results), tree_leaves(again), strict=True):
                    if isinstance(first, Tensor) and first.data_ptr() != new.data_ptr():
                        first.copy_(new)


class _Recording(TorchDispatchMode):
    def __init__(self, graph: RecordedGraph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph
        self._written: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute and record an operator."""
        keywords = kwargs or {}
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[place] if place < len(args) else keywords.get(argument.name)
                tensors = (x for x in tree_leaves(given) if isinstance(x, Tensor))
                self._written += [(x.detach(), x.detach().clone()) for x in tensors]
        results = func(*args, **keywords)
        self._graph.calls.append((func, args, keywords, results))
        return results

    def put_back(self) -> None:
        """Write what there was before."""
        for written, before in reversed(self._written):
            written.copy_(before)


class _Stream:
    def wait_stream(self, _other: object) -> None:
        """Wait for nothing: a CPU has one stream."""


@contextmanager
def _record(graph: RecordedGraph, *_: object, **__: object) -> Iterator[None]:
    recording = _Recording(graph)
    with recording:
        yield
    recording.put_back()


def record_graphs(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType = encoder
) -> list[RecordedGraph]:
    """Have a module's graphs on the CPU be recordings; return the list that will hold them."""
    graphs: list[RecordedGraph] = []

    def make() -> RecordedGraph:
        graphs.append(RecordedGraph())
        return graphs[-1]

    monkeypatch.setattr(module, "uses_graphs", lambda _device: True)
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
