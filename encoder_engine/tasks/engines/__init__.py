"""Engines of tasks' models: compute the outputs that a task decodes, with PyTorch or without."""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.tasks.engines.module import TaskModule

__all__ = ["TaskModule"]

__getattr__, __dir__ = lazy_names(__name__, {"TaskModule": "module"})
