"""Attention by the kernels: which blocks each works on, and how each is launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..common.layout import rows_apart
from .backward import attention_backward
from .config import Launches, choose_launches
from .differentiable import Call, Gradients, define_operator
from .forward import attention_forward

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Layout
    from .terms import Terms


class Blocks(NamedTuple):
    """Where the sequences lie, and the blocks of rows each kernel works on."""

    cu_seqlens: Tensor  # int32 [B + 1]
    forward_tiles: Tensor  # int32 [n, 2]: sequence, block
    query_tiles: Tensor
    key_tiles: Tensor


def _launches(query_THD: Tensor, dropout: float) -> Launches:
    head_dim, itemsize = query_THD.shape[2], query_THD.element_size()
    return choose_launches(head_dim, itemsize=itemsize, dropout=dropout > 0.0)


def _apart(call: Call) -> Call:
    query, key, value = (rows_apart(x) for x in call[:3])
    return call._replace(query_THD=query, key_TKD=key, value_TKD=value)


def _forward(call: Call) -> tuple[Tensor, Tensor]:
    blocks = Blocks(*call.layout)
    launch = _launches(call.query_THD, call.dropout).forward
    return attention_forward(_apart(call), blocks.cu_seqlens, blocks.forward_tiles, launch)


def _backward(grad_output_THD: Tensor, output_THD: Tensor, lse_HT: Tensor, call: Call) -> Gradients:
    blocks = Blocks(*call.layout)
    return attention_backward(
        grad_output_THD,
        output_THD,
        lse_HT,
        _apart(call),
        blocks.cu_seqlens,
        blocks.query_tiles,
        blocks.key_tiles,
        _launches(call.query_THD, call.dropout),
    )


_attend = define_operator("attention", _forward, _backward, keeps_lse=True)


def attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Layout, terms: Terms
) -> Tensor:
    """Fulfil ``ops.attention``."""
    launches = _launches(query_THD, terms.dropout)
    blocks = Blocks(
        sequences.cu_seqlens,
        sequences.tiles(launches.forward.block_rows),
        sequences.tiles(launches.query.block_rows),
        sequences.tiles(launches.key.block_keys),
    )
    return _attend(query_THD, key_TKD, value_TKD, list(blocks), terms)
