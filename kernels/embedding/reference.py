"""The embedding layer straight from its definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def embedding(
    input_ids_T: Tensor,
    position_ids_T: Tensor | None,
    segment_ids_T: Tensor | None,
    *,
    token_weight_VE: Tensor,
    position_weight_PE: Tensor | None,
    segment_weight_SE: Tensor | None,
    norm_weight_E: Tensor | None,
    norm_bias_E: Tensor | None,
    epsilon: float,
    token_scale_T: Tensor | None,
    dropout: float,
) -> Tensor:
    """Return ``dropout(layer_norm(scale * token[id] + position[place] + segment[kind]))``.

    Without a norm's weight the sum is not normalised.
    """
    x = token_weight_VE.double()[input_ids_T.long()]
    if token_scale_T is not None:
        x = x * token_scale_T.double()[:, None]
    if position_ids_T is not None and position_weight_PE is not None:
        x = x + position_weight_PE.double()[position_ids_T.long()]
    if segment_weight_SE is not None:
        segments = torch.zeros_like(input_ids_T) if segment_ids_T is None else segment_ids_T
        x = x + segment_weight_SE.double()[segments.long()]
    if norm_weight_E is not None:
        centred = x - x.mean(dim=1, keepdim=True)
        variance = (centred * centred).mean(dim=1, keepdim=True)
        x = centred / (variance + epsilon).sqrt() * norm_weight_E.double()
    if norm_bias_E is not None:
        x = x + norm_bias_E.double()
    if dropout > 0.0:
        x = torch.dropout(x, dropout, train=True)
    return x.to(token_weight_VE.dtype)
