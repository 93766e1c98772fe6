"""Attention's backward pass: two kernels over the scores, or one if all are short; no atomics.

How it works: FlashAttention-2's backward (Dao 2023), split in two. One kernel owns a block of keys
and sums over queries (``dk``, ``dv``); the other owns a block of queries and sums over keys
(``dq``). The scores are computed twice: seven matrix products instead of five. In return every sum
has one owner and one order, so that results are bit-reproducible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..common.launch import cdiv, next_power_of_2, on_device
from .differentiable import Call, Gradients, empty_gradients
from .grad_key_value import _attention_grad_key_value_kernel
from .grad_positions import position_gradients, score_gradients
from .grad_query import _attention_grad_query_kernel
from .grad_short import _attention_grad_short_kernel
from .joined import heads_apart

if TYPE_CHECKING:
    from .blocks import Blocks
    from .config import Launch, Launches

DELTA_ROWS = 64


@triton.jit
def _attention_delta_kernel(
    output_pointer,  # [M, H, D] contiguous
    grad_output_pointer,  # [M, H, D] contiguous
    delta_pointer,  # float32 [H, M]
    num_queries,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    head = tl.program_id(1)
    columns = tl.arange(0, BLOCK_DIM)
    places = rows[:, None] * (NUM_HEADS * HEAD_DIM) + head * HEAD_DIM + columns[None, :]
    inside = (rows < num_queries)[:, None] & (columns < HEAD_DIM)[None, :]
    output = tl.load(output_pointer + places, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_output_pointer + places, mask=inside, other=0.0).to(tl.float32)
    place = head.to(tl.int64) * num_queries + rows
    tl.store(delta_pointer + place, tl.sum(output * grad, axis=1), mask=rows < num_queries)


@on_device
def attention_backward(
    grad_output_MHD: Tensor,
    output_MHD: Tensor,
    lse_HM: Tensor,
    call: Call,
    blocks: Blocks,
    launches: Launches,
) -> Gradients:
    """Launch the Triton kernels of attention's backward pass; return all gradients."""
    query, key = call[:2]
    whole = empty_gradients(call)
    if blocks.query_tiles.shape[0] == 0:
        optional = (call.bias_HR, call.position_key_NHD, call.position_query_NHD)
        learned = (query.new_empty(0) if x is None else x for x in optional)
        return Gradients._make(torch.zeros_like(x).contiguous() for x in (*whole, *learned))
    grads = list(heads_apart(whole[0], key.shape[1])) if call.joined else list(whole)
    grad_output = grad_output_MHD.contiguous()
    if launches.short is not None:
        _launch_short(call, blocks, launches.short, (grad_output, output_MHD, lse_HM), grads)
        return Gradients._make((*whole, *(query.new_empty(0) for _ in range(3))))
    inputs = (*call[:3], grad_output, lse_HM, attention_delta(output_MHD, grad_output, lse_HM))
    numbers, constants = blocks.numbers(call), blocks.gradient_constants(call)
    queries, listed = (blocks.cu_queries, blocks.places), (blocks.cu_globals, blocks.global_places)
    sums = _bias_sums(call, blocks.query_tiles.shape[0], launches.query.block_keys)
    terms, kept = blocks.terms(call), score_gradients(call, blocks)
    _attention_grad_query_kernel[(blocks.query_tiles.shape[0] * query.shape[1],)](
        *inputs,
        grads[0],
        sums,
        kept.by_query,
        blocks.cu_seqlens,
        blocks.query_tiles,
        *queries,
        *listed,
        *terms,
        _longest(kept.by_query),
        *numbers,
        **constants,
        HAS_GLOBALS=blocks.global_places.shape[0] > 0,
        **launches.query.options(),
    )
    # Rows beyond the window see global keys too: their gradients are computed again, over all rows.
    listed_sums = _listed_bias_sums(call, blocks.global_places.shape[0])
    beyond = {"WINDOW": -1, "BEYOND": constants["WINDOW"]}
    all_keys, global_keys = (blocks.key_tiles, {"BEYOND": -1}), (blocks.global_tiles, beyond)
    for tiles, more in (all_keys, global_keys) if blocks.global_tiles.shape[0] else (all_keys,):
        _attention_grad_key_value_kernel[(tiles.shape[0] * key.shape[1],)](
            *inputs,
            *grads[1:],
            listed_sums,
            kept.by_key,
            blocks.cu_seqlens,
            tiles,
            *queries,
            *listed,
            *terms,
            _longest(kept.by_key),
            *numbers,
            **(constants | more),
            LISTED=more is beyond,
            **launches.key.options(),
        )
    added = position_gradients(call, blocks, kept, launches.query.block_rows, launches.key_block)
    for grad, of_positions in zip(grads, added[:2], strict=False):
        if of_positions is not None:
            grad.add_(of_positions)
    return Gradients._make((*whole, _grad_bias(sums, listed_sums, call), *added[2:]))


def _longest(kept: Tensor | None) -> int:
    return 0 if kept is None else kept.shape[2]


@on_device
def _launch_short(
    call: Call, blocks: Blocks, launch: Launch, given: tuple[Tensor, ...], grads: list[Tensor]
) -> None:
    """Launch the one kernel that computes all gradients where each sequence fits into a block.

    ``given``: the output's gradient, the output and the log-sum-exps. ``grads``: memory for the
    gradients of query, key and value.
    """
    constants = blocks.gradient_constants(call)
    for absent in ("SUBSET", "HAS_BIAS", "POSITIONS", "ENTRIES_REACH", "NUM_ENTRIES"):
        assert not constants.pop(absent), f"{absent} is for the kernels of long sequences"
    _attention_grad_short_kernel[(blocks.key_tiles.shape[0] * call.key_TKD.shape[1],)](
        *call[:3],
        *given,
        *grads,
        blocks.cu_seqlens,
        blocks.key_tiles,
        call.slopes_H,
        call.seed,
        call.query_MHD.shape[0],
        call.scale,
        call.dropout,
        **constants,
        BLOCK=launch.block_keys,
        **launch.resources(),
    )


@on_device
def attention_delta(output_MHD: Tensor, grad_output_MHD: Tensor, lse_HM: Tensor) -> Tensor:
    """Return the sum over features of gradient times output, float32 [H, M] (D in the papers)."""
    num_queries, num_heads, head_dim = output_MHD.shape
    delta = torch.empty_like(lse_HM)
    _attention_delta_kernel[(cdiv(num_queries, DELTA_ROWS), num_heads)](
        output_MHD,
        grad_output_MHD,
        delta,
        num_queries,
        NUM_HEADS=num_heads,
        HEAD_DIM=head_dim,
        BLOCK_DIM=max(16, next_power_of_2(head_dim)),
        BLOCK_ROWS=DELTA_ROWS,
        num_warps=4,
    )
    return delta


def _bias_sums(call: Call, num_tiles: int, block: int) -> Tensor | None:
    """Allocate each program's sums of score gradients by distance; None without a relative bias.

    Float32 [tiles, H, distances], the distances padded to whole blocks.
    """
    if call.bias_HR is None:
        return None
    num_heads, num_distances = call.bias_HR.shape
    width = (2 * cdiv(num_distances // 2, block) + 2) * block
    return call.bias_HR.new_zeros(num_tiles, num_heads, width, dtype=torch.float32)


def _listed_bias_sums(call: Call, num_listed: int) -> Tensor | None:
    """Allocate the score gradients of each global key by distance: float32 [G, H, 2 r + 1].

    None without a relative bias or global keys.
    """
    if call.bias_HR is None or num_listed == 0:
        return None
    return call.bias_HR.new_zeros(num_listed, *call.bias_HR.shape, dtype=torch.float32)


def _grad_bias(sums: Tensor | None, listed_sums: Tensor | None, call: Call) -> Tensor:
    """Return the relative bias's gradient: the programs' sums of score gradients, added up.

    Distances beyond the bias's reach belong to its first and last entry.
    """
    if sums is None or call.bias_HR is None:
        return call.query_MHD.new_empty(0)
    reach = call.bias_HR.shape[1] // 2
    sums_HD = sums.sum(dim=0)
    centre = sums_HD.shape[1] // 2
    first, last = centre - reach, centre + reach
    ends = (sums_HD[:, : first + 1].sum(1, True), sums_HD[:, last:].sum(1, True))
    grad = torch.cat([ends[0], sums_HD[:, first + 1 : last], ends[1]], dim=1)
    if listed_sums is not None:
        grad += listed_sums.sum(dim=0)
    return grad.to(call.bias_HR.dtype)
