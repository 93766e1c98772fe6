"""Engines that compute the outputs of tasks' models, with PyTorch or without, for ``Task.decode``.

They are imported at their first use, because they need PyTorch or the extension.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.tasks.engines.compiled import CompiledModel
    from encoder_engine.tasks.engines.module import TaskModule
    from encoder_engine.tasks.engines.prompted import load_prompted, load_prompted_module

__all__ = ["CompiledModel", "TaskModule", "load_prompted", "load_prompted_module"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CompiledModel": "compiled",
        "TaskModule": "module",
        "load_prompted": "prompted",
        "load_prompted_module": "prompted",
    },
)
