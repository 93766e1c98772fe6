"""The embedding layer, sum and norm, by PyTorch's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812

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
    """Compute ``ops.embedding`` by PyTorch's operators."""
    hidden_TE = F.embedding(input_ids_T, token_weight_VE)
    if token_scale_T is not None:
        hidden_TE = (hidden_TE * token_scale_T[:, None]).to(hidden_TE.dtype)
    if segment_weight_SE is not None:
        segments = (
            segment_weight_SE[:1]
            if segment_ids_T is None
            else F.embedding(segment_ids_T, segment_weight_SE)
        )
        hidden_TE = hidden_TE + segments
    if position_ids_T is not None and position_weight_PE is not None:
        hidden_TE = hidden_TE + F.embedding(position_ids_T, position_weight_PE)
    if norm_weight_E is not None:
        width = norm_weight_E.shape
        hidden_TE = F.layer_norm(hidden_TE, width, norm_weight_E, norm_bias_E, epsilon)
    return F.dropout(hidden_TE, dropout) if dropout > 0.0 else hidden_TE
