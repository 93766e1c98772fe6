"""Attention by the Triton kernels: launch shapes, blocks, and the registered operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.layout import rows_apart
from .backward import attention_backward
from .blocks import Blocks
from .config import Extras, Launches, choose_launches
from .differentiable import Call, Gradients, define_operator
from .forward import attention_forward

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout
    from .terms import Terms


def _launches(query_MHD: Tensor, extras: Extras) -> Launches:
    itemsize = query_MHD.element_size()
    return choose_launches(query_MHD.shape[2], itemsize=itemsize, extras=extras)


def _laid_out(call: Call) -> Call:
    query, key, value = (rows_apart(x) for x in call[:3])
    bias = None if call.bias_HR is None else call.bias_HR.contiguous()
    return call._replace(query_MHD=query, key_TKD=key, value_TKD=value, bias_HR=bias)


def _forward(call: Call) -> tuple[Tensor, Tensor]:
    blocks = Blocks(*call.layout)
    launch = _launches(call.query_MHD, blocks.extras(call)).forward
    return attention_forward(_laid_out(call), blocks, launch)


def _backward(grad_output_MHD: Tensor, output_MHD: Tensor, lse_HM: Tensor, call: Call) -> Gradients:
    blocks = Blocks(*call.layout)
    launches = _launches(call.query_MHD, blocks.extras(call))
    return attention_backward(
        grad_output_MHD, output_MHD, lse_HM, _laid_out(call), blocks, launches
    )


_attend = define_operator("attention", _forward, _backward, keeps_lse=True)


def attention(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention``."""
    extras = Extras(
        dropout=terms.dropout > 0.0,
        bias=terms.bias_HR is not None,
        listed=any(x is not None and len(x) for x in (terms.query_rows, terms.global_rows)),
    )
    blocks = _blocks(_launches(query_MHD, extras), sequences, terms)
    output_MHD = _attend(query_MHD, key_TKD, value_TKD, list(blocks), terms)
    if terms.global_rows is None:
        return output_MHD
    # Every row has attended to the global rows; these attend to every row in a second call.
    rows, everywhere = terms.global_rows.rows, terms.global_rows
    if terms.query_rows is not None:
        rows, everywhere = terms.query_rows.shared_with(terms.global_rows)
    full = terms._replace(window=None, global_rows=None, query_rows=everywhere)
    full_MHD = attention(query_MHD[rows], key_TKD, value_TKD, sequences, full)
    return output_MHD.index_copy(0, rows.long(), full_MHD)


def _blocks(launches: Launches, sequences: Layout, terms: Terms) -> Blocks:
    nothing = sequences.cu_seqlens[:0]
    queries, places = sequences, nothing
    if terms.query_rows is not None:
        queries, places = terms.query_rows.within, terms.query_rows.places
    cu_globals, global_places, global_tiles = nothing, nothing, nothing
    if terms.global_rows is not None:
        cu_globals = terms.global_rows.within.cu_seqlens
        global_places = terms.global_rows.places
        global_tiles = terms.global_rows.within.tiles(launches.key.block_keys)
    return Blocks(
        cu_seqlens=sequences.cu_seqlens,
        forward_tiles=queries.tiles(launches.forward.block_rows),
        query_tiles=queries.tiles(launches.query.block_rows),
        key_tiles=sequences.tiles(launches.key.block_keys),
        cu_queries=queries.cu_seqlens,
        places=places,
        cu_globals=cu_globals,
        global_places=global_places,
        global_tiles=global_tiles,
    )
