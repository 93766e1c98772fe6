"""Descriptors of keys and values for Hopper's tensor memory accelerator (TMA).

One thread asks for a whole block by its coordinates. By pointers, the same block takes each thread
24 instructions and 16 registers, and a barrier between the copy and the product that reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from triton.tools.tensor_descriptor import TensorDescriptor

from .config import can_describe_width

if TYPE_CHECKING:
    from torch import Tensor

    from .config import Launch
    from .differentiable import Call

# Bytes to which TMA requires addresses and strides to be aligned.
ALIGNMENT = 16


def descriptors(
    call: Call, launch: Launch
) -> tuple[TensorDescriptor | None, TensorDescriptor | None]:
    """Return TMA descriptors of keys and values; (None, None) if the kernel reads by pointers."""
    key, value = call.key_TKD, call.value_TKD
    if not (launch.described and can_describe(key) and can_describe(value)):
        return None, None
    return _describe(key, launch.block_keys), _describe(value, launch.block_keys)


def can_describe(x_TKD: Tensor) -> bool:
    """Return whether TMA can read blocks of the heads of ``x_TKD``, by its layout in memory."""
    head_dim = x_TKD.shape[2]
    offsets = (x_TKD.data_ptr(), x_TKD.stride(0) * x_TKD.element_size())
    # Rows of an expanded tensor are the same one, which is not a stride for TMA.
    apart = x_TKD.stride(0) >= x_TKD.shape[1] * head_dim
    aligned = all(offset % ALIGNMENT == 0 for offset in offsets)
    return can_describe_width(head_dim) and apart and aligned and len(x_TKD) > 0


def _describe(x_TKD: Tensor, block_rows: int) -> TensorDescriptor:
    num_rows, num_heads, head_dim = x_TKD.shape
    shape = [num_rows, num_heads * head_dim]
    return TensorDescriptor(x_TKD, shape, [x_TKD.stride(0), 1], [block_rows, head_dim])
