"""Encoders that were saved in 8-bit integers: their tensors, and their layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import ops
from encoder_engine.errors import CheckpointFileError
from encoder_engine.models.linear import Linear, QuantizedLinear, replace_layers

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.models.encoder import Encoder

__all__ = ["load_quantized", "quantized_parameters"]


def _layers(encoder: Encoder) -> dict[str, Linear]:
    found = encoder.blocks.named_modules()
    return {f"blocks.{name}": layer for name, layer in found if isinstance(layer, Linear)}


def quantized_parameters(encoder: Encoder) -> dict[str, Tensor]:
    """Give names and shapes of what a quantized encoder has otherwise, on no device."""
    parameters = {}
    for name, layer in _layers(encoder).items():
        shape = (layer.out_features, layer.in_features)
        parameters[f"{name}.weight"] = torch.empty(shape, dtype=torch.int8, device="meta")
        parameters[f"{name}.weight_scale"] = torch.empty(layer.out_features, device="meta")
    return parameters


def load_quantized(encoder: Encoder, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put quantized layers in the place of the plain ones; return the rest of the state.

    Raises :class:`CheckpointFileError` for a scale that is not above zero.
    """
    rest = dict(state)
    made = {}
    for name, layer in _layers(encoder).items():
        scale_N = rest.pop(f"{name}.weight_scale").float()
        if not bool((scale_N > 0).all()):
            raise CheckpointFileError(
                f"{name}.weight_scale holds {float(scale_N.min())}; scales are above zero, the "
                "checkpoint is damaged"
            )
        bias_N = rest.pop(f"{name}.bias").float() if layer.bias is not None else None
        weight = ops.QuantizedWeight.pack(rest.pop(f"{name}.weight"), scale_N, bias_N)
        made[layer] = QuantizedLinear(weight)
    replace_layers(encoder.blocks, Linear, made.__getitem__)
    return rest
