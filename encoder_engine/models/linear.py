"""Dense layers as modules, trainable or in 8-bit integers, and embedding tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.ops import Approximation

__all__ = ["Linear", "QuantizedLinear", "Table", "dense_weights", "replace_layers"]

Layer = TypeVar("Layer", bound=nn.Module)


class Linear(nn.Linear):
    """A dense layer: ``input @ weight.T + bias``, optionally followed by GELU."""

    def reset_parameters(self) -> None:
        """Draw random weights, unless they are on the meta device."""
        # Drawing on the meta device imports torch's compiler, which takes longer than loading.
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, input_TK: Tensor, *, gelu: Approximation | None = None) -> Tensor:
        """Return the layer's output, [T, N]."""
        return self.multiply(input_TK, self.weight, self.bias, gelu=gelu)

    @staticmethod
    def multiply(
        input_TK: Tensor,
        weight_NK: Tensor,
        bias_N: Tensor | None,
        *,
        gelu: Approximation | None = None,
    ) -> Tensor:
        """Return ``input @ weight.T + bias``, [T, N], for any weight: what ``forward`` computes."""
        if gelu is None:
            return ops.linear(input_TK, weight_NK, bias_N)
        return ops.bias_gelu(ops.linear(input_TK, weight_NK), bias_N, approximate=gelu)

    def quantize(self) -> QuantizedLinear:
        """Return the layer in int8; drop this layer, which is unchanged, to free its weights."""
        with torch.inference_mode(False):
            return QuantizedLinear(ops.quantize_weight(self.weight, self.bias))


class QuantizedLinear(nn.Module):
    """A dense layer for inference on a CPU in 8-bit integers; the input is quantized by row.

    State: ``weight`` int8 [N, K], ``weight_scale`` float32 [N], ``bias`` float32 [N].
    """

    def __init__(self, weight: ops.QuantizedWeight) -> None:
        super().__init__()
        self.quantized = weight

    def forward(self, input_TK: Tensor, *, gelu: Approximation | None = None) -> Tensor:
        """Return the layer's output, [T, N], in the input's dtype."""
        return self.multiply(*ops.quantize_rows(input_TK), dtype=input_TK.dtype, gelu=gelu)

    def multiply(
        self,
        bytes_TK: Tensor,
        scale_T: Tensor,
        *,
        dtype: torch.dtype,
        gelu: Approximation | None = None,
    ) -> Tensor:
        """Return the layer's output for an input that is already quantized, [T, N]."""
        return ops.quantized_linear(bytes_TK, scale_T, self.quantized, dtype=dtype, gelu=gelu)

    def requantize(
        self, bytes_TK: Tensor, scale_T: Tensor, *, gelu: Approximation | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the layer's output quantized for the next layer: bytes [T, N] and scales [T]."""
        return ops.requantized_linear(bytes_TK, scale_T, self.quantized, gelu=gelu)

    def _apply(self, *_: object, **__: object) -> QuantizedLinear:
        raise UnsupportedFeatureError(
            "a quantized layer can be neither moved nor cast; load the model again as wanted"
        )

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, *_: object) -> None:
        destination[f"{prefix}weight"] = self.quantized.unpack()
        destination[f"{prefix}weight_scale"] = self.quantized.scale_N
        if self.quantized.bias_N is not None:
            destination[f"{prefix}bias"] = self.quantized.bias_N

    def __getstate__(self) -> dict[str, Any]:
        """Return the unpacked integers to pickle: the packed layout is specific to this machine."""
        weight = self.quantized
        state = self.__dict__.copy()
        state["quantized"] = (weight.unpack(), weight.scale_N, weight.bias_N)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Pack the int8 weight that was pickled, in this machine's layout."""
        self.__dict__.update(state, quantized=ops.QuantizedWeight.pack(*state["quantized"]))


def dense_weights(module: nn.Module) -> list[nn.Parameter]:
    """Return the weights and biases of all :class:`Linear` layers of a module."""
    layers = [layer for layer in module.modules() if isinstance(layer, Linear)]
    return [weight for layer in layers for weight in layer.parameters()]


def replace_layers(
    module: nn.Module, kind: type[Layer], make: Callable[[Layer], nn.Module]
) -> None:
    """Replace every layer of the class ``kind`` by ``make(layer)``; shared layers stay shared.

    Each layer is freed before the next replacement is made, so peak memory grows by one layer.
    """
    places: dict[Layer, list[tuple[nn.Module, str]]] = {}
    for parent in module.modules():
        for name, child in parent._modules.items():
            if isinstance(child, kind):
                places.setdefault(child, []).append((parent, name))
    while places:
        layer, found = places.popitem()
        made = make(layer)
        for parent, name in found:
            setattr(parent, name, made)
        # The variable would keep this layer alive while the next one is made.
        del layer


class Table(nn.Embedding):
    """An embedding table: one learned vector per id."""

    def reset_parameters(self) -> None:
        """Draw random vectors, unless they are on the meta device."""
        if not self.weight.is_meta:
            super().reset_parameters()
