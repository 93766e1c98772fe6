"""Loads encoders that were saved in 8-bit integers: tensors and layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine import ops
from encoder_engine.errors import CheckpointFileError
from encoder_engine.models.linear import Linear, QuantizedLinear, replace_layers

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["load_quantized"]


def load_quantized(part: nn.Module, name: str, state: dict[str, Tensor]) -> None:
    """Replace a part's plain layers by quantized ones, and pop the layers' tensors off ``state``.

    Raises :class:`CheckpointFileError` for a scale that is not above zero.
    """
    made = {}
    for path, layer in _layers(part, name).items():
        if f"{path}.weight_scale" not in state:
            continue
        scale_N = state.pop(f"{path}.weight_scale").float()
        if not bool((scale_N > 0).all()):
            raise CheckpointFileError(
                f"{path}.weight_scale holds {float(scale_N.min())}; scales are above zero, the "
                "checkpoint is damaged"
            )
        bias_N = state.pop(f"{path}.bias").float() if layer.bias is not None else None
        weight = ops.QuantizedWeight.pack(state.pop(f"{path}.weight"), scale_N, bias_N)
        made[layer] = QuantizedLinear(weight)
    if made:
        replace_layers(part, Linear, made.__getitem__)


def _layers(part: nn.Module, name: str) -> dict[str, Linear]:
    found = part.named_modules(prefix=name)
    return {path: layer for path, layer in found if isinstance(layer, Linear)}
