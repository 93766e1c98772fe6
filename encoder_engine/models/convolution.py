"""Convolution over neighbouring tokens of packed sequences (DeBERTa v2).

Dimensions: T packed tokens, D width, K kernel size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.models.norm import Norm

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import ConvolutionSpec
    from encoder_engine.packing import Sequences

__all__ = ["Convolution"]


class Convolution(nn.Module):
    """Convolution, activation, residual and norm; zeros stand beyond a sequence's ends."""

    def __init__(self, spec: ConvolutionSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.kernel = nn.Conv1d(width, width, spec.kernel_size)
        self.norm = Norm(spec.norm, width=width)

    def forward(self, input_TD: Tensor, residual_TD: Tensor, sequences: Sequences) -> Tensor:
        """Return ``norm(residual + activation(dropout(convolution(input))))``, [T, D]."""
        weight_DDK = self.kernel.weight
        columns = torch.cat(self._neighbours(input_TD, sequences), dim=1)
        convolved_TD = ops.linear(columns, weight_DDK.transpose(1, 2).flatten(1), self.kernel.bias)
        if self.training and self.spec.dropout > 0.0:
            convolved_TD = F.dropout(convolved_TD, self.spec.dropout)
        activate = torch.tanh if self.spec.activation == "tanh" else F.gelu
        output_TD: Tensor = self.norm(activate(convolved_TD), residual_TD=residual_TD)
        return output_TD

    def _neighbours(self, input_TD: Tensor, sequences: Sequences) -> list[Tensor]:
        """Return every token's neighbour at each of the K kernel offsets: K tensors [T, D]."""
        reach = self.spec.kernel_size // 2
        places = sequences.positions
        lengths = sequences.cu_seqlens.diff()[sequences.sequence_ids]
        rows = torch.arange(input_TD.shape[0], device=input_TD.device)
        found = []
        for step in range(-reach, reach + 1):
            there = (places + step >= 0) & (places + step < lengths)
            taken = F.embedding(torch.where(there, rows + step, rows), input_TD)
            found.append(taken * there[:, None])
        return found
