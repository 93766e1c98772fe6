"""The weights of dense layers in autocast's dtype, rounded once a step and not each micro-batch.

Autocast rounds a weight at each product: its cache does not know the views of weights by which the
operations multiply, and lasts for one context. The gradient of a rounded weight is added to that of
the weight in float32, as autocast adds it: all bits are the same.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.models.linear import Linear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

__all__ = ["HeldCasts", "WeightCasts"]


class WeightCasts:
    """The dense layers of a model, and their weights in the dtype of its products."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        # Subclasses may use their weight otherwise.
        self._layers = [layer for layer in model.modules() if type(layer) is Linear]
        self._dtype = dtype
        self._used: set[Linear] = set()

    def begin_micro_batch(self) -> None:
        """Forget which weights were used: a micro-batch follows."""
        self._used.clear()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context, that of a step, in which the layers multiply by rounded weights."""
        rounded = {layer: layer.weight.to(self._dtype) for layer in self._layers}

        def use(layer: Linear, weight: Tensor) -> Tensor:
            # The gradients of several uses would be added before they are widened.
            if layer in self._used:
                return weight.to(self._dtype)
            self._used.add(layer)
            return rounded[layer]

        with replaced_weights(self._layers, use):
            yield


class HeldCasts:
    """The dense layers of a model, and their rounded weights where CUDA graphs find them."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._layers = [layer for layer in model.modules() if type(layer) is Linear]
        self._rounded = {
            layer: torch.empty_like(layer.weight, dtype=dtype, requires_grad=False)
            for layer in self._layers
        }

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights as they are now."""
        torch._foreach_copy_(list(self._rounded.values()), [layer.weight for layer in self._layers])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context in which the layers multiply by the rounded weights."""

        def use(layer: Linear, weight: Tensor) -> Tensor:
            found: Tensor = _Rounded.apply(weight, self._rounded[layer])  # type: ignore[no-untyped-call]
            return found

        with replaced_weights(self._layers, use):
            yield


class _Rounded(torch.autograd.Function):
    """A rounded weight, whose gradient is the weight's in the dtype of that."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rounded: Tensor) -> Tensor:
        ctx.dtype = weight.dtype
        return rounded.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.to(ctx.dtype), None


@contextmanager
def replaced_weights(
    layers: list[Linear], use: Callable[[Linear, Tensor], Tensor]
) -> Iterator[None]:
    """Return a context in which a layer reads ``use(layer, weight)`` as its weight."""
    before = [layer._parameters for layer in layers]
    for layer in layers:
        layer.__dict__["_parameters"] = _Parameters(layer, use)
    try:
        yield
    finally:
        for layer, parameters in zip(layers, before, strict=True):
            layer.__dict__["_parameters"] = parameters


class _Parameters(dict[str, Any]):
    """The parameters of a layer, which are listed as they are, and of which one is read otherwise.

    nn.Module reads an attribute by the key, and lists parameters by the items.
    """

    def __init__(self, layer: Linear, use: Callable[[Linear, Tensor], Tensor]) -> None:
        super().__init__(layer._parameters)
        self._layer, self._use = layer, use

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return self._use(self._layer, value) if name == "weight" else value
