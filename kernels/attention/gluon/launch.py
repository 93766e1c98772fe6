"""Launches the attention kernels in Gluon, and says which calls they can take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ...common.launch import has_wgmma, num_processors, on_device
from ..backward import attention_delta
from ..config import GLUON_BACKWARD_SCRATCH, GLUON_BACKWARD_SHARED, GLUON_LAUNCHES
from ..descriptors import can_describe
from ..differentiable import Gradients, empty_gradients
from ..joined import heads_apart
from .backward import _attention_backward_gluon_kernel
from .forward import _attention_forward_gluon_kernel

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from ..blocks import Blocks
    from ..config import GluonLaunch
    from ..differentiable import Call

LOG2E = 1.4426950408889634
# The gradients of wider heads would spill.
BACKWARD_HEAD_DIM = 64
ELEMENTS = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def refuse(call: Call, blocks: Blocks, sizes: Collection[int]) -> str | None:
    """Return why the kernels in Gluon for these head sizes cannot take a call; None: they can."""
    query = call.query_MHD
    if not has_wgmma(query):
        return f"it needs an H100 or H200, the tensors are on {query.device}"
    if query.dtype not in ELEMENTS:
        return f"it computes bfloat16 and float16, not {query.dtype}"
    if query.shape[2] not in sizes:
        return f"its heads are {sorted(sizes)} wide, these are {query.shape[2]}"
    given = {
        "bias": call.bias_HR,
        "slopes": call.slopes_H,
        "dropout": call.seed,
        "window": call.window,
        "positions": call.entries_R,
        "causal border": call.causal or None,
        "query rows": blocks.places if len(blocks.places) else None,
        "global rows": blocks.global_places if len(blocks.global_places) else None,
    }
    terms = [name for name, term in given.items() if term is not None]
    if terms:
        return f"it has no {' and no '.join(terms)}"
    if not all(can_describe(x) for x in call[:3]):
        return "TMA reads rows that are 16 bytes aligned, and whose strides are; copy the tensors"
    return None


@on_device
def attention_forward_gluon(
    call: Call, blocks: Blocks, launch: GluonLaunch
) -> tuple[Tensor, Tensor]:
    """Launch the forward kernel in Gluon; each token's [heads, D] must be contiguous.

    Returns the output [T, H, D] and the log2-sum-exp2 of each row, float32 [H, T].

    Raises ``ValueError`` for a call that it cannot take.
    """
    query, key, value = call[:3]
    num_rows, num_heads, head_dim = query.shape
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    lse = torch.empty(num_heads, num_rows, dtype=torch.float32, device=query.device)
    num_tiles = blocks.forward_tiles.shape[0]
    if num_tiles == 0:
        return output, lse
    _check(call, blocks, {head_dim for head_dim, _ in GLUON_LAUNCHES})
    num_programs = min(num_tiles * num_heads, launch.num_programs * num_processors(query))
    _attention_forward_gluon_kernel[(num_programs,)](
        _describe(query, 64),
        _describe(key, launch.block_keys),
        _describe(value, launch.block_keys),
        output,
        lse,
        blocks.cu_seqlens,
        blocks.forward_tiles,
        num_tiles,
        num_rows,
        call.scale * LOG2E,
        NUM_HEADS=num_heads,
        GROUP=call.group,
        HEAD_DIM=head_dim,
        **launch.constants(),
        num_warps=4,
        maxnreg=launch.max_registers,
    )
    return output, lse


@on_device
def attention_backward_gluon(
    grad_output_THD: Tensor, output_THD: Tensor, lse_HT: Tensor, call: Call, blocks: Blocks
) -> Gradients:
    """Launch the kernel of all gradients in Gluon: a program for each sequence and key head.

    Raises ``ValueError`` for a call that it cannot take.
    """
    _check(call, blocks, {BACKWARD_HEAD_DIM})
    query, key, value = call[:3]
    num_rows, num_heads, head_dim = query.shape
    whole = empty_gradients(call)
    grads = heads_apart(whole[0], key.shape[1]) if call.joined else whole
    grad_output = grad_output_THD.contiguous()
    longest = call.longest[1]
    launch = GLUON_BACKWARD_SCRATCH
    if 0 < longest <= 64 * GLUON_BACKWARD_SHARED.sum_blocks and call.group == 1:
        launch = GLUON_BACKWARD_SHARED
    sums = None if launch.sum_blocks else query.new_empty(query.shape, dtype=torch.float32)
    _attention_backward_gluon_kernel[(len(blocks.sequence_tiles) * key.shape[1],)](
        _describe(query, 64),
        _describe(grad_output, 64),
        _describe(key, 128),
        _describe(value, 128),
        lse_HT,
        attention_delta(output_THD, grad_output, lse_HT),
        sums,
        *grads,
        blocks.cu_seqlens,
        blocks.sequence_tiles,
        num_rows,
        call.scale * LOG2E,
        call.scale,
        NUM_HEADS=num_heads,
        GROUP=call.group,
        HEAD_DIM=head_dim,
        JOINED=call.joined,
        **launch.constants(),
        num_warps=4,
        maxnreg=launch.max_registers,
    )
    return Gradients._make((*whole, *(query.new_empty(0) for _ in range(3))))


def _check(call: Call, blocks: Blocks, sizes: Collection[int]) -> None:
    refusal = refuse(call, blocks, sizes)
    if refusal is not None:
        raise ValueError(f"attention in Gluon cannot take this call: {refusal}; or do not pin it")


def _describe(x_TKD: Tensor, block_rows: int) -> TensorDescriptor:
    num_rows, num_heads, head_dim = x_TKD.shape
    block = [block_rows, head_dim]
    layout = gl.NVMMASharedLayout.get_default_for(block, ELEMENTS[x_TKD.dtype])
    shape, strides = [num_rows, num_heads * head_dim], [x_TKD.stride(0), 1]
    return TensorDescriptor(x_TKD, shape, strides, block, layout)
