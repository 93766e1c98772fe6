"""Attention by the Triton kernels: launch shapes, blocks, and the registered operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..common.launch import is_hopper
from ..common.layout import contiguous, rows_apart
from .backward import attention_backward
from .blocks import Blocks
from .config import (
    WHOLE_SEQUENCE,
    Extras,
    GluonLaunch,
    Launches,
    Longest,
    choose_launches,
)
from .differentiable import Call, Gradients, define_operator
from .forward import attention_forward
from .terms import Disentangled

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout
    from .terms import Terms


# A scale of 0 times a masked score of -inf would be NaN.
LEAST_SCALE = 2.0**-100


def _launches(query_MHD: Tensor, extras: Extras, longest: Longest) -> Launches:
    return choose_launches(
        query_MHD.shape[2],
        itemsize=query_MHD.element_size(),
        extras=extras,
        longest=longest,
        hopper=is_hopper(query_MHD),
    )


def _laid_out(call: Call) -> Call:
    """Return a call as the kernels need it: each token's heads contiguous, the scale positive.

    The kernels take the maximum of the unscaled products, that of the scores if the scale is
    positive.
    """
    query, key, value = (rows_apart(x) for x in call[:3])
    scale = max(abs(call.scale), LEAST_SCALE)
    position_query = call.position_query_NHD
    if call.scale < 0.0:
        query = -query
        position_query = None if position_query is None else -position_query
    bias, slopes = contiguous(call.bias_HR), contiguous(call.slopes_H)
    return call._replace(
        query_MHD=query,
        key_TKD=key,
        value_TKD=value,
        bias_HR=bias,
        slopes_H=slopes,
        position_query_NHD=position_query,
        scale=scale,
    )


def _forward(call: Call) -> tuple[Tensor, Tensor]:
    blocks = Blocks(*call.layout)
    launch = _launches(call.query_MHD, blocks.extras(call), Longest(*call.longest)).forward
    if isinstance(launch, GluonLaunch):
        # Imported on request alone: Gluon takes 90 ms, is experimental, and may change its names.
        from .gluon.launch import attention_forward_gluon

        return attention_forward_gluon(_laid_out(call), blocks, launch)
    return attention_forward(_laid_out(call), blocks, launch)


def _backward(grad_output_MHD: Tensor, output_MHD: Tensor, lse_HM: Tensor, call: Call) -> Gradients:
    blocks = Blocks(*call.layout)
    launches = _launches(call.query_MHD, blocks.extras(call), Longest(*call.longest))
    given = (grad_output_MHD, output_MHD, lse_HM, _laid_out(call), blocks)
    if len(blocks.sequence_tiles):
        from .gluon.launch import attention_backward_gluon

        gradients = attention_backward_gluon(*given)
    else:
        gradients = attention_backward(*given, launches)
    if call.scale < 0.0:
        gradients = gradients._replace(
            query_MHD=-gradients.query_MHD, position_query_NHD=-gradients.position_query_NHD
        )
    return gradients


_attend = define_operator("attention", _forward, _backward, keeps_lse=True, joins=True)


def attention(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """Implement :func:`encoder_engine.ops.attention` by the Triton kernels."""
    if terms.bias_HR is not None:
        # Entries of two bytes are not asynchronous copies: for heads of 64 the loop over the keys
        # then takes 808 issue cycles instead of 611, and with a window ptxas serialises its wgmma.
        terms = terms._replace(bias_HR=terms.bias_HR.float())
    if terms.disentangled is not None:
        key_NHD, query_NHD, entries_R = terms.disentangled
        vectors = [None if x is None else x.to(query_MHD.dtype) for x in (key_NHD, query_NHD)]
        terms = terms._replace(disentangled=Disentangled(vectors[0], vectors[1], entries_R))
    extras = Extras(
        dropout=terms.dropout > 0.0,
        bias=terms.bias_HR is not None or terms.disentangled is not None,
        listed=any(x is not None and len(x) for x in (terms.query_rows, terms.global_rows)),
        positions=terms.disentangled is not None,
        masked=terms.window is not None or terms.causal,
        slopes=terms.slopes_H is not None,
    )
    longest = _longest(sequences, terms)
    blocks = _blocks(_launches(query_MHD, extras, longest), sequences, terms)
    output_MHD = _attend(query_MHD, key_TKD, value_TKD, list(blocks), terms, longest)
    if terms.global_rows is None:
        return output_MHD
    if terms.query_rows is not None and torch.compiler.is_compiling():
        # A trace does not know which queries are global: all are computed again.
        unlimited = terms._replace(window=None, global_rows=None)
        seen_MHD = attention(query_MHD, key_TKD, value_TKD, sequences, unlimited)
        is_global = torch.isin(terms.query_rows.rows, terms.global_rows.rows)
        return torch.where(is_global[:, None, None], seen_MHD, output_MHD)
    # Every row has attended to the global rows; these attend to every row in a second call.
    rows, everywhere = terms.global_rows.rows, terms.global_rows
    if terms.query_rows is not None:
        rows, everywhere = terms.query_rows.shared_with(terms.global_rows)
    full = terms._replace(window=None, global_rows=None, query_rows=everywhere)
    full_MHD = attention(query_MHD[rows], key_TKD, value_TKD, sequences, full)
    return output_MHD.index_copy(0, rows.long(), full_MHD)


def _longest(sequences: Layout, terms: Terms) -> Longest:
    # A compiled graph does not know the lengths: it gets the launch shapes of long sequences.
    if torch.compiler.is_compiling():
        return Longest()
    queries = sequences if terms.query_rows is None else terms.query_rows.within
    # Powers of two, so that a graph that was traced with the lengths at hand serves other batches.
    most = [1 << max(x.max_seqlen - 1, 0).bit_length() for x in (queries, sequences)]
    return Longest(queries=most[0], keys=most[1])


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
    query_tiles, key_tiles, sequence_tiles = nothing, nothing, nothing
    # A graph that was traced without gradients may be called with them.
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        query_tiles = queries.tiles(launches.query.block_rows)
        key_tiles = sequences.tiles(launches.key_block)
        if launches.gluon_gradients:
            sequence_tiles = sequences.tiles(WHOLE_SEQUENCE)
    return Blocks(
        cu_seqlens=sequences.cu_seqlens,
        forward_tiles=queries.tiles(launches.forward.block_rows),
        query_tiles=query_tiles,
        key_tiles=key_tiles,
        cu_queries=queries.cu_seqlens,
        places=places,
        cu_globals=cu_globals,
        global_places=global_places,
        global_tiles=global_tiles,
        sequence_tiles=sequence_tiles,
    )
