"""Layer norm and RMS norm as a module over packed rows.

Dimensions: T packed tokens, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine import ops

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import NormSpec

__all__ = ["Norm"]


class Norm(nn.Module):
    """Layer norm or RMS norm, optionally of the sum with a residual."""

    def __init__(self, spec: NormSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.weight = nn.Parameter(torch.full((width,), 1.0 - spec.offset))
        self.bias = nn.Parameter(torch.zeros(width)) if spec.bias else None

    @property
    def factors_D(self) -> Tensor:  # noqa: N802
        """The factor on each feature: the weight, plus the offset if there is one."""
        return self.weight if self.spec.offset == 0.0 else self.weight + self.spec.offset

    def forward(
        self, input_TD: Tensor, *, residual_TD: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        """Return the norm of ``dropout(input) + residual``, [T, D]."""
        output_TD: Tensor = self._norm(input_TD, residual_TD=residual_TD, dropout=dropout)
        return output_TD

    def with_sum(
        self, input_TD: Tensor, *, residual_TD: Tensor, dropout: float
    ) -> tuple[Tensor, Tensor]:
        """Return the normalized sum, and the sum itself, which is a pre-norm block's residual."""
        output_TD, sum_TD = self._norm(
            input_TD, residual_TD=residual_TD, dropout=dropout, return_sum=True
        )
        return output_TD, sum_TD

    def _norm(self, input_TD: Tensor, **options: Any) -> Any:
        options["epsilon"] = self.spec.epsilon
        if not self.spec.centred:
            return ops.rms_norm(input_TD, self.factors_D, **options)
        return ops.layer_norm(input_TD, self.factors_D, self.bias, **options)

    def quantized(
        self, input_TD: Tensor, *, residual_TD: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the normalized rows, and the same in bytes with scales; layer norm only."""
        output_TD, *quantized = ops.layer_norm_quantized(
            *(input_TD, self.factors_D, self.bias),
            epsilon=self.spec.epsilon,
            residual_TD=residual_TD,
        )
        return output_TD, (quantized[0], quantized[1])
