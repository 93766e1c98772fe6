"""Detects changes of an encoder's modules and weights that would invalidate its CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ModuleState"]


class ModuleState:
    """The modules of an encoder, their hooks, and where and how their weights lie in memory.

    Compared at every call, so the comparison reads the modules' dictionaries directly.
    """

    def __init__(self, encoder: nn.Module) -> None:
        self._modules = list(encoder.modules())
        self._attributes = [vars(module) for module in self._modules]
        self._children = [module._modules for module in self._modules]
        self._tensors = [d for m in self._modules for d in (m._parameters, m._buffers)]
        self._hooks = [d for m in self._modules for d in (m._forward_hooks, m._forward_pre_hooks)]
        self._state = self._read()

    def has_changed(self) -> bool:
        """Return whether a module, a hook or a weight's memory is not what it was at first."""
        return self._read() != self._state

    def any_training(self) -> bool:
        """Return whether any module of the encoder is in training mode."""
        return any(module.training for module in self._modules)

    def any_requires_grad(self) -> bool:
        """Return whether any weight of the encoder requires a gradient."""
        return any(x.requires_grad for d in self._tensors for x in d.values() if x is not None)

    def _read(self) -> tuple[Any, ...]:
        children = [child for d in self._children for child in d.values()]
        weights = [
            (x.data_ptr(), x.dtype, x.shape, x.stride())
            for d in self._tensors
            for x in d.values()
            if x is not None
        ]
        kinds = [(type(module), vars(module).get("spec")) for module in self._modules]
        computes_otherwise = any(self._hooks) or any("forward" in d for d in self._attributes)
        return children, weights, kinds, computes_otherwise
