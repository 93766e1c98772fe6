"""The dense layer by PyTorch; in float32 on a CPU, a row's result depends on no other row.

This does not hold with gradients, nor under torch.compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.aten import autocast_linear
from encoder_engine.ops.registry import autocast_dtype, is_transformed

if TYPE_CHECKING:
    from torch import Tensor


def linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Compute ``ops.linear`` by PyTorch's operators."""
    if _trains_on_gpu(input_TK, weight_NK, bias_N):
        return autocast_linear.linear(input_TK, weight_NK, bias_N)
    if not _by_onednn(input_TK) or is_transformed():
        return _block_linear(input_TK, weight_NK, bias_N)
    # MKL's order of summation depends on the number of rows; oneDNN's does not, except for a single
    # row. tests/ops/linear/test_linear.py checks this.
    if not torch.is_grad_enabled():
        return onednn_linear(input_TK, weight_NK, bias_N)
    return F.linear(input_TK, weight_NK, bias_N)


def _trains_on_gpu(input_TK: Tensor, *weights: Tensor | None) -> bool:
    """Return whether the layer is trained under autocast on a GPU, outside of torch.compile."""
    if not (gpu.is_gpu(input_TK) and torch.is_grad_enabled()) or torch.compiler.is_compiling():
        return False
    if autocast_dtype(input_TK) is None or is_transformed():
        return False
    return any(x is not None and x.requires_grad for x in (input_TK, *weights))


# Numbers in 16 bits that oneDNN's AMX kernels sum at a time.
BLOCK = 32


def fill_blocks(*operands: Tensor) -> tuple[Tensor, ...]:
    """Pad the operands' last dimension with zeros to whole blocks, for 16-bit products on a CPU.

    It is the dimension that the product sums over. Other operands are returned unchanged.
    AMX kernels of oneDNN before PR 5723 read the last block of a row beyond its end, where the next
    row begins, and multiply it with zeros: NaN and infinities there become NaN in this row
    (https://github.com/uxlfoundation/oneDNN/issues/5717). SDPA, a transposed left operand and
    right operands are read within their rows (tests/ops/test_rows_alone.py).
    """
    first = operands[0]
    missing = -first.shape[-1] % BLOCK
    if missing == 0 or first.device.type != "cpu":
        return operands
    if first.element_size() != 2 and not torch.is_autocast_enabled("cpu"):
        return operands
    return tuple(F.pad(operand, (0, missing)) for operand in operands)


def _block_linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Compute the dense layer with operands padded by :func:`fill_blocks`, also for gradients.

    In training N is padded too, because the input's gradient is a sum over N.
    """
    input_TK, weight_NK = fill_blocks(input_TK, weight_NK)
    num_outputs = len(weight_NK)
    if torch.is_grad_enabled():
        weight_NK = fill_blocks(weight_NK.T)[0].T
        bias_N = None if bias_N is None else fill_blocks(bias_N)[0]
    output_TN = F.linear(input_TK, weight_NK, bias_N)
    whole = output_TN.shape[1] == num_outputs
    return output_TN if whole else output_TN[:, :num_outputs].contiguous()


# Rows or columns of a product at a time.
PART = 2048


def multiply(
    a_MK: Tensor, b_KN: Tensor, *, bias_N: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """Return ``a @ b + bias``, without gradients, by the faster of MKL and oneDNN in PyTorch.

    On AMD's processors MKL is limited to AVX2: in float32 on two cores of Zen 5 it reached 93 to
    154 GFLOP/s, oneDNN 191 to 366, but 117 for a weight's gradient of 30,522 rows at once.
    """
    if cpu.is_amd() and _by_onednn(a_MK) and a_MK.numel() > 0:
        if out is None:
            return onednn_linear(a_MK, b_KN.T, bias_N)
        # oneDNN writes to new memory only; in small parts, little memory is used again and again.
        if len(a_MK) >= b_KN.shape[1]:
            for start in range(0, len(a_MK), PART):
                rows = slice(start, start + PART)
                out[rows] = onednn_linear(a_MK[rows], b_KN.T, bias_N)
        else:
            for start in range(0, b_KN.shape[1], PART):
                columns = slice(start, start + PART)
                bias = None if bias_N is None else bias_N[columns]
                out[:, columns] = onednn_linear(a_MK, b_KN.T[columns], bias)
        return out
    if a_MK.stride(1) == 1:
        a_MK, b_NK = fill_blocks(a_MK, b_KN.T)
        b_KN = b_NK.T
    if bias_N is not None:
        return torch.addmm(bias_N, a_MK, b_KN, out=out)
    return torch.mm(a_MK, b_KN, out=out)


def _by_onednn(input_TK: Tensor) -> bool:
    """Return whether oneDNN may compute the dense layer of this input.

    True for float32 on a CPU, outside autocast and torch.compile, where PyTorch has oneDNN.
    """
    if input_TK.dtype != torch.float32 or input_TK.device.type != "cpu":
        return False
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available


def onednn_linear(input_TK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """Compute the dense layer by oneDNN; a row's order of sums does not depend on other rows."""
    num_rows = input_TK.shape[0]
    if num_rows == 0:
        return input_TK.new_empty(0, weight_NK.shape[0])
    # A single row is a matrix-vector product, summed in another order: pass it twice.
    rows = input_TK.expand(2, -1) if num_rows == 1 else input_TK
    # oneDNN reads a weight by strides, slowly unless they are a matrix's or its transpose's.
    if not (weight_NK.is_contiguous() or weight_NK.T.is_contiguous()):
        weight_NK = weight_NK.contiguous()
    output: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight_NK, bias_N, "none", [], "")
    # Not a view: autograd refuses in-place changes of it.
    return output[:1].clone() if num_rows == 1 else output
