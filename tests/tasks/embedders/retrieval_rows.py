"""Rows, and the parts of a task, that the tests of embedders' tasks share."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encoder_engine.data.loader import Position
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe import ModelRecipe, TunedOptimizer
from encoder_engine.inputs.records import Record
from encoder_engine.opening.recipe import encoder_directory
from encoder_engine.tasks.task import Windows
from encoder_engine.text import Tokenizer
from encoder_engine.training.course import StepBatches
from encoder_engine.training.step.grad_cache import couple
from encoder_engine.training.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.tasks.models.task_model import TaskModel
    from encoder_engine.tasks.task import Task

ROWS: list[dict[str, Any]] = [
    {"query": "the cat sat", "positive": "a cat", "negatives": ["the dog", "a dog ran"]},
    {"query": "the dog ran", "positive": ["a dog ran", "dog"], "negatives": "the cat"},
    {"query": "the cat sat", "positive": "the cat", "negative": "unread"},
]
SCORED_LISTS = [ROWS[0] | {"score": [1.0, 0.5, -1.0]}] * 2


def read(task: Task[Any, Any], rows: list[dict[str, Any]]) -> list[Any]:
    return [task.read(Record(row, "f", n + 1, n)) for n, row in enumerate(rows)]


def prepare(
    task: Task[Any, Any], directory: Path, rows: list[dict[str, Any]]
) -> tuple[Any, list[Any], Any, Tokenizer]:
    """Return the fitted task, its examples, their items, and the tokenizer."""
    task = task.of_checkpoint(directory)
    examples = read(task, rows)
    task = task.fit(examples)
    tokenizer = task.own_tokenizer(Tokenizer.from_pretrained(directory))
    items = task.encode(examples, tokenizer, Windows(max_length=24))
    return task, examples, items, tokenizer


def begin(task: Any, directory: Path) -> TaskModel:
    """Return the model that training begins with, in evaluation mode."""
    return build_task_model(
        *(directory, encoder_directory(directory), task, ModelRecipe(), TunedOptimizer()), seed=0
    ).eval()


def train(task: Any, model: TaskModel, items: Any, *, num_steps: int = 8) -> list[float]:
    """Take steps on all items, and return the weighted loss before each."""
    inputs = task.collate(items)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    values = []
    for _ in range(num_steps):
        found = model(inputs)
        counts = model.counts(inputs)
        assert {name: one.num_terms for name, one in found.items()} == counts
        assert model.weights.keys() == counts.keys()
        loss = torch.stack(
            [model.weights[name] * one.total / one.num_terms for name, one in found.items()]
        ).sum()
        values.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return values


def assert_coupled_as_whole(task: Any, model: Any, items: Any) -> None:
    """Assert that a step in micro-batches of one item has the gradient of the whole step."""
    model.double()
    scales = {
        name: weight / model.counts(task.collate(items))[name]
        for name, weight in model.weights.items()
    }
    found = model(task.collate(items))
    loss = torch.stack([scales[name] * found[name].total for name in scales]).sum()
    torch.autograd.backward(loss)
    expected = _collect(model)
    batches = [task.collate(items.take(np.array([place]))) for place in range(len(items))]
    step = StepBatches(batches, len(batches), Position())
    inputs, sums = couple(
        *(model, step, World(), scales), prepare=lambda _place: None, casting=nullcontext
    )
    for one in inputs:
        model(one)["coupled"].total.backward()
    coupled = _collect(model)
    assert coupled.keys() == expected.keys()
    eps = torch.finfo(torch.float64).eps
    for total, name in zip(sums, scales, strict=True):
        error = abs(float(total) - float(found[name].total.detach()))
        assert error <= len(items.rows.ids) * eps * float(total)
    largest = max(float(x.abs().max()) for x in expected.values())
    # A gradient is a sum over the tokens, of terms that each layer below rounds.
    bound = len(items.rows.ids) * len(expected) * eps * largest
    for name, gradient in expected.items():
        assert float((coupled[name] - gradient).abs().max()) <= bound, name


def _collect(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found
