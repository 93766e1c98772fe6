"""Chooses the engine of a task's model, and imports PyTorch only where it computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from encoder_engine.tasks import engines

if TYPE_CHECKING:
    from encoder_engine.tasks.engines.engine import TaskEngine
    from encoder_engine.tasks.models.task_model import TaskModel

__all__ = ["task_engine"]


def task_engine(model: TaskEngine | TaskModel) -> TaskEngine:
    """Return the engine that computes a model's outputs: a model may be one."""
    if hasattr(model, "run"):
        return cast("TaskEngine", model)
    return engines.TaskModule(cast("TaskModel", model))
