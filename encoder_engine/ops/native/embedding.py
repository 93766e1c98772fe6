"""The embedding sum and norm by the C++ extension."""

from __future__ import annotations

import torch
from torch import Tensor

from encoder_engine.ops.native.embedding_gradient import embed, embed_for_training
from encoder_engine.ops.native.rows import alike, is_trained


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
    """Compute ``ops.embedding`` by the C++ extension."""
    tables = (token_weight_VE, position_weight_PE, segment_weight_SE)
    norm = (norm_weight_E, norm_bias_E)
    if dropout > 0.0 or is_trained(*tables, *norm):
        ids = (input_ids_T, position_ids_T, segment_ids_T)
        return embed_for_training(
            *(ids, tables, norm), epsilon=epsilon, token_scale_T=token_scale_T, dropout=dropout
        )
    # The operator exists for tracing; a call through it costs more than a short text's embedding.
    compute = operator if torch.compiler.is_compiling() else _compute
    output_TE: Tensor = compute(
        *(input_ids_T, position_ids_T, segment_ids_T),
        *tables,
        *norm,
        epsilon,
        token_scale_T,
    )
    return output_TE


def _compute(
    input_ids_T: Tensor,
    position_ids_T: Tensor | None,
    segment_ids_T: Tensor | None,
    token_weight_VE: Tensor,
    position_weight_PE: Tensor | None,
    segment_weight_SE: Tensor | None,
    norm_weight_E: Tensor | None,
    norm_bias_E: Tensor | None,
    epsilon: float,
    token_scale_T: Tensor | None = None,
) -> Tensor:
    tables = token_weight_VE, position_weight_PE, segment_weight_SE
    weight, bias = alike(token_weight_VE, norm_weight_E, norm_bias_E)[1:]
    output_TE = torch.empty(
        input_ids_T.shape[0], token_weight_VE.shape[1], dtype=token_weight_VE.dtype
    )
    ids = input_ids_T, position_ids_T, segment_ids_T
    embed(ids, tables, (weight, bias), output_TE, epsilon=epsilon, token_scale_T=token_scale_T)
    return output_TE


operator = torch.library.custom_op("encoder_engine::native_embedding", mutates_args=())(_compute)


@operator.register_fake
def _(
    input_ids_T: Tensor,
    _places: Tensor | None,
    _kinds: Tensor | None,
    token_weight_VE: Tensor,
    *_: object,
) -> Tensor:
    return token_weight_VE.new_empty(input_ids_T.shape[0], token_weight_VE.shape[1])
