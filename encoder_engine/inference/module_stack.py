"""Computes on a CPU, without PyTorch, the dense and norm modules that follow an encoder.

Rows are float32, and a row's result does not depend on the others. R rows, K features in, N
features out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.inference.layers import pack
from encoder_engine.inference.rows import layer_norm_rows, normalize_rows, project_rows
from encoder_engine.packing.module_stack import (
    ELEMENTWISE,
    DenseModule,
    LayerNormModule,
    NormalizeModule,
)

if TYPE_CHECKING:
    from encoder_engine.inference.layers import Dense
    from encoder_engine.packing.module_stack import Array as Vectors
    from encoder_engine.packing.module_stack import ModuleStack

__all__ = ["CompiledStack"]


class CompiledStack:
    """The modules that follow an encoder, with dense layers packed at their first use."""

    def __init__(self, stack: ModuleStack) -> None:
        self.stack = stack
        self._packed: dict[tuple[int, str], Dense] = {}

    def __call__(self, rows_RK: Vectors, *, num_threads: int) -> Vectors:
        """Apply all modules in turn to rows; returns float32 [R, N]."""
        for place, module in enumerate(self.stack.modules):
            if isinstance(module, DenseModule):
                rows_RK = self._dense(place, module, rows_RK, num_threads)
            elif isinstance(module, LayerNormModule):
                rows_RK = layer_norm_rows(
                    rows_RK,
                    module.weight_K,
                    module.bias_K,
                    epsilon=module.epsilon,
                    num_threads=num_threads,
                )
            else:
                assert isinstance(module, NormalizeModule)
                rows_RK = normalize_rows(rows_RK, num_threads=num_threads)
        return rows_RK

    def _dense(self, place: int, module: DenseModule, x_RK: Vectors, num_threads: int) -> Vectors:
        elementwise = ELEMENTWISE.get(module.activation)
        function = "none" if module.activation == "identity" else str(module.activation)
        raised_RN: Any = project_rows(
            x_RK,
            self._layer(place, "weight", module.weight_NK, module.bias_N),
            function="none" if elementwise else function,
            num_threads=num_threads,
        )
        if elementwise is not None:
            raised_RN = elementwise(raised_RN).astype(np.float32, copy=False)
        residual = module.residual
        if isinstance(residual, np.ndarray):
            layer = self._layer(place, "residual", residual, None)
            raised_RN += project_rows(x_RK, layer, num_threads=num_threads)
        elif residual is not None:
            raised_RN += x_RK
        found: Vectors = raised_RN
        return found

    def _layer(self, place: int, part: str, weight: Vectors, bias: Vectors | None) -> Dense:
        key = (place, part)
        if key not in self._packed:
            # Two threads may both pack it: the same bytes.
            self._packed[key] = pack(weight, bias)
        return self._packed[key]
