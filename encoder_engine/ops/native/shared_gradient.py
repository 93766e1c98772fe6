"""Adds the embedding's gradient in place to the output layer's gradient of the same, tied table.

A tied table's gradient has two parts: a whole matrix from the vocabulary projection, and some rows
from the embedding. Autograd would add the two as whole matrices: of 30,522 x 384 numbers in
float32, 50 million bytes are set to zero, and 140 million read and written.

How it works: within one backward pass, autograd keeps the projection's gradient until the
embedding's is computed as well. The embedding's backward function adds its rows to that gradient in
place, and returns no gradient itself. If the projection's gradient belongs to another backward
pass, or autograd has replaced it, the embedding returns a whole matrix.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["find", "leave"]


class _Left(NamedTuple):
    task: int  # of the backward pass
    table: weakref.ref[Tensor]
    gradient: weakref.ref[Tensor]


# By the table's id. Weak references alone: nothing is kept alive.
_left: dict[int, _Left] = {}


def leave(table: Tensor, gradient: Tensor) -> None:
    """Record, for :func:`find`, the gradient of a table that a backward function will return."""
    task = torch._C._current_graph_task_id()
    for place, entry in list(_left.items()):
        if entry.table() is None:
            del _left[place]
    _left[id(table)] = _Left(task, weakref.ref(table), weakref.ref(gradient))


def find(table: Tensor) -> Tensor | None:
    """Return the gradient recorded for a table in the running backward pass; None: none is."""
    entry = _left.get(id(table))
    if entry is None or entry.task != torch._C._current_graph_task_id():
        return None
    return entry.gradient() if entry.table() is table else None
