"""The embedding sum and norm by the C++ extension: forward, without gradients or dropout."""

from __future__ import annotations

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.rows import address, alike


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
    """Implement ``ops.embedding``."""
    # The operator exists for tracing; a call through it costs more than a short text's embedding.
    compute = operator if torch.compiler.is_compiling() else _compute
    output_TE: Tensor = compute(
        *(input_ids_T, position_ids_T, segment_ids_T),
        *(token_weight_VE, position_weight_PE, segment_weight_SE),
        *(norm_weight_E, norm_bias_E),
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
    tokens, positions, segments, weight, bias = alike(
        *(token_weight_VE, position_weight_PE, segment_weight_SE, norm_weight_E, norm_bias_E)
    )
    ids, places, kinds = _narrow(input_ids_T), _narrow(position_ids_T), _narrow(segment_ids_T)
    scales = None if token_scale_T is None else token_scale_T.contiguous()
    num_rows, width = input_ids_T.shape[0], token_weight_VE.shape[1]
    output_TE = torch.empty(num_rows, width, dtype=token_weight_VE.dtype)
    _native.embed_rows(
        token_weight_VE.dtype == torch.bfloat16,
        *(address(tokens), address(ids), token_weight_VE.shape[0]),
        *(address(positions), address(places), _length(positions)),
        *(address(segments), address(kinds), _length(segments)),
        *(address(weight), address(bias), output_TE.data_ptr()),
        *(num_rows, width),
        epsilon,
        torch.get_num_threads(),
        address(scales),
    )
    return output_TE


def _narrow(ids_T: Tensor | None) -> Tensor | None:
    """Return ids as int32; what int32 cannot hold stays outside every table."""
    if ids_T is None:
        return None
    if ids_T.dtype == torch.int64:
        ids_T = ids_T.clamp(-1, torch.iinfo(torch.int32).max).to(torch.int32)
    return ids_T.contiguous()


def _length(table: Tensor | None) -> int:
    return 0 if table is None else table.shape[0]


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
