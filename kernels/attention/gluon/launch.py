"""Launches attention in Gluon, and says which calls it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ...common.launch import has_wgmma, num_processors, on_device
from ..config import GLUON_LAUNCHES
from ..descriptors import can_describe
from .forward import _attention_forward_gluon_kernel

if TYPE_CHECKING:
    from torch import Tensor

    from ..blocks import Blocks
    from ..config import GluonLaunch
    from ..differentiable import Call

LOG2E = 1.4426950408889634
ELEMENTS = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


def refuse(call: Call, blocks: Blocks) -> str | None:
    """Return why the kernel cannot take a call, or None."""
    query = call.query_MHD
    sizes = sorted({head_dim for head_dim, _ in GLUON_LAUNCHES})
    if not has_wgmma(query):
        return f"it needs an H100 or H200, the tensors are on {query.device}"
    if query.dtype not in ELEMENTS:
        return f"it computes bfloat16 and float16, not {query.dtype}"
    if query.shape[2] not in sizes:
        return f"its heads are {sizes} wide, these are {query.shape[2]}"
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
    """Launch the kernel on tensors whose tokens are [heads, D] contiguous.

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
    refusal = refuse(call, blocks)
    if refusal is not None:
        raise ValueError(f"attention in Gluon cannot take this call: {refusal}; or do not pin it")
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


def _describe(x_TKD: Tensor, block_rows: int) -> TensorDescriptor:
    num_rows, num_heads, head_dim = x_TKD.shape
    block = [block_rows, head_dim]
    layout = gl.NVMMASharedLayout.get_default_for(block, ELEMENTS[x_TKD.dtype])
    shape, strides = [num_rows, num_heads * head_dim], [x_TKD.stride(0), 1]
    return TensorDescriptor(x_TKD, shape, strides, block, layout)
