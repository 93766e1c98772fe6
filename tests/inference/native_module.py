"""Modules whose dense layers compute with the products of compiled encoders.

The other operations of a module are native on a CPU anyway. So such a module computes, operation by
operation, the bits that a compiled encoder must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from encoder_engine.inference.layers import pack
from encoder_engine.inference.rows import project_rows
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor
from encoder_engine.models.linear import Linear, replace_layers

if TYPE_CHECKING:
    from encoder_engine import ops

__all__ = ["NativeLinear", "use_native_products"]

FUNCTIONS = {None: "none", "none": "gelu", "tanh": "gelu_tanh"}


class NativeLinear(nn.Module):
    """A dense layer by the product of compiled encoders."""

    def __init__(self, plain: Linear) -> None:
        super().__init__()
        bias = None if plain.bias is None else to_array(plain.bias)
        self.layer = pack(to_array(plain.weight), bias)

    def forward(self, input_TK: Tensor, *, gelu: ops.Approximation | None = None) -> Tensor:
        """Return [T, N]."""
        output_TN = project_rows(
            to_array(input_TK),
            self.layer,
            function=FUNCTIONS[gelu],
            num_threads=torch.get_num_threads(),
        )
        return to_tensor(output_TN)


def use_native_products(model: nn.Module) -> None:
    """Replace every plain dense layer of a model in place."""
    replace_layers(model, Linear, NativeLinear)
