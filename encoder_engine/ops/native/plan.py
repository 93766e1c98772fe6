"""A plan of native operations on packed rows, listed once and run in one call.

Between two operations the Python interpreter would take longer than a short text's matrix products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from encoder_engine import _native
from encoder_engine.ops.native.activation import GELU_NAMES
from encoder_engine.ops.native.rows import address

if TYPE_CHECKING:
    from encoder_engine.ops.weights import Approximation, PackedWeight, QuantizedWeight
    from encoder_engine.packing import Sequences

__all__ = ["INPUT", "OUTPUT", "NativePlan", "QuantizedRows"]

INPUT, OUTPUT, _NONE = 0, 1, -1


class QuantizedRows(NamedTuple):
    """The buffers of quantized rows: bytes and scales."""

    bytes: int
    scales: int


class NativePlan:
    """Native operations between buffers of a row per token, in one dtype.

    ``INPUT`` and ``OUTPUT`` are the buffers of the batch. Weights must meet the contract of the
    operation of the same name, contiguous and on the CPU: nothing is checked here.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._half = dtype == torch.bfloat16
        self._program = _native.Plan()
        # Steps keep addresses: these tensors must live as long.
        self._kept_alive: list[object] = []

    def rows(self, width: int) -> int:
        """Add a buffer of rows of ``width`` elements; return its number."""
        return self._program.add_buffer(width * self._dtype.itemsize)

    def quantized_rows(self, width: int) -> QuantizedRows:
        """Add buffers of quantized rows of ``width`` bytes; return their numbers."""
        return QuantizedRows(
            self._program.add_buffer(width), self._program.add_buffer(torch.float32.itemsize)
        )

    def packed_linear(
        self, weight: PackedWeight, source: int, target: int, *, function: str = "none"
    ) -> None:
        """Add ``ops.packed_linear`` and an activation function, by the extension's name of it."""
        self._kept_alive.append(weight)
        width, depth = weight.shape
        self._program.packed_linear(
            *(self._half, function, weight.content.data_ptr(), depth, width),
            *(source, target),
        )

    def quantized_linear(
        self,
        weight: QuantizedWeight,
        source: QuantizedRows,
        target: int | QuantizedRows,
        *,
        function: str = "none",
    ) -> None:
        """Add ``ops.quantized_linear``, or ``ops.requantized_linear`` for a quantized target."""
        self._kept_alive.append(weight)
        width, depth = weight.shape
        self._program.quantized_linear(
            *(self._half, function, weight.content.data_ptr()),
            *(weight.scale_N.data_ptr(), address(weight.bias_N), depth, width),
            *source,
            *((_NONE, *target) if isinstance(target, QuantizedRows) else (target, _NONE, _NONE)),
        )

    def normalize(
        self,
        weight_D: Tensor,
        bias_D: Tensor | None,
        source: int,
        target: int,
        *,
        residual: int | None,
        epsilon: float,
        centred: bool,
        total: int | None = None,
        quantized: QuantizedRows | None = None,
    ) -> None:
        """Add ``ops.layer_norm`` or ``ops.rms_norm``.

        ``total``: the buffer for the sum with the residual. ``quantized``: quantize the result too.
        """
        self._kept_alive += [weight_D.detach(), None if bias_D is None else bias_D.detach()]
        self._program.normalize(
            *(self._half, weight_D.data_ptr(), address(bias_D), weight_D.shape[0]),
            epsilon,
            centred,
            *(source, _buffer(residual), _buffer(total), target),
            *((_NONE, _NONE) if quantized is None else quantized),
        )

    def activate(self, source: int, target: int, width: int, *, gelu: Approximation | None) -> None:
        """Add ``ops.geglu``, or ``ops.swiglu`` without ``gelu``; the source has 2 ``width``."""
        function = "silu" if gelu is None else GELU_NAMES[gelu]
        self._program.activate(self._half, function, True, width, source, target)

    def add(self, source: int, other: int, target: int, width: int) -> None:
        """Add the sum of two rows."""
        self._program.add(self._half, width, source, other, target)

    def rotate(self, table_PD: Tensor, heads: int, *, num_heads: int, row_width: int) -> None:
        """Add ``ops.rotary``, in place, of the first ``num_heads`` heads of each row."""
        self._kept_alive.append(table_PD)
        head_dim = table_PD.shape[1]
        width = num_heads * head_dim
        self._program.rotate(self._half, table_PD.data_ptr(), width, head_dim, row_width, heads)

    def quantize(self, source: int, target: QuantizedRows, width: int) -> None:
        """Add ``ops.quantize_rows``."""
        self._program.quantize(self._half, width, source, *target)

    def attention(
        self,
        source: int,
        target: int,
        *,
        num_heads: int,
        head_dim: int,
        scale: float,
        window: int | None,
        alibi_slopes_H: Tensor | None,
        bias_reach: int | None,
    ) -> None:
        """Add ``ops.attention``; a row of the source holds a token's query, key and value.

        ``bias_reach``: of the relative bias that ``run`` is given; None: there is none.
        """
        self._kept_alive.append(alibi_slopes_H)
        width = num_heads * head_dim
        query, key, value = ((source, part * width, 3 * width) for part in range(3))
        self._program.attend(
            *(self._half, num_heads, num_heads, head_dim, scale, query, key, value, target),
            window=-1 if window is None else window,
            alibi_slopes=address(alibi_slopes_H),
            bias_reach=0 if bias_reach is None else bias_reach,
        )

    def run(
        self,
        input_TD: Tensor,
        sequences: Sequences,
        position_ids_T: Tensor | None = None,
        relative_bias_HR: Tensor | None = None,
    ) -> Tensor:
        """Run all steps on the rows [T, D]; return [T, D].

        ``position_ids_T``: for ``rotate``. ``relative_bias_HR``: for ``attention``.
        """
        input_TD = input_TD.contiguous()
        if position_ids_T is not None:
            position_ids_T = position_ids_T.to(torch.int32).contiguous()
        cu_seqlens = sequences.cu_seqlens.contiguous()
        if relative_bias_HR is not None:
            relative_bias_HR = relative_bias_HR.float().contiguous()
        output_TD = torch.empty_like(input_TD)
        self._program.run(
            *(input_TD.data_ptr(), output_TD.data_ptr(), cu_seqlens.data_ptr()),
            address(position_ids_T),
            *(len(cu_seqlens) - 1, len(input_TD), torch.get_num_threads()),
            relative_bias=address(relative_bias_HR),
        )
        return output_TD


def _buffer(number: int | None) -> int:
    return _NONE if number is None else number
