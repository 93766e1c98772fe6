"""A program: native operations on the rows of a batch, listed once and run in one call.

Between two operations the Python interpreter would take longer than a short text's matrix products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from encoder_engine import _native
from encoder_engine.inference.memory import address

if TYPE_CHECKING:
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.inference.batch import Batch
    from encoder_engine.inference.layers import Dense, NormWeights, QuantizedDense

__all__ = ["INPUT", "OUTPUT", "Program", "QuantizedRows"]

INPUT, OUTPUT, _NONE = 0, 1, -1


class QuantizedRows(NamedTuple):
    """The buffers of quantized rows: bytes and scales."""

    bytes: int
    scales: int


class Program:
    """Native operations between buffers of a row per token, in float32 or bfloat16.

    ``INPUT`` and ``OUTPUT`` are the buffers of the batch. The layers must be in ``dtype``, or int8:
    nothing is checked here.
    """

    def __init__(self, dtype: str) -> None:
        self._half = dtype == "bfloat16"
        self._item_bytes = 2 if self._half else 4
        self._plan = _native.Plan()
        # Steps hold addresses: these arrays must live as long.
        self._kept_alive: list[object] = []
        self._embeds = self._turns_heads = False

    def rows(self, width: int, domain: str = "tokens") -> int:
        """Add a buffer of rows of ``width`` elements; return its number.

        ``domain``: what has a row each: ``"tokens"`` or ``"sequences"``.
        """
        return self._plan.add_buffer(width * self._item_bytes, domain)

    def wide_rows(self, width: int) -> int:
        """Add a buffer of float32 rows of tokens; return its number."""
        return self._plan.add_buffer(width * 4, "tokens")

    def quantized_rows(self, width: int) -> QuantizedRows:
        """Add buffers of quantized rows of ``width`` bytes; return their numbers."""
        return QuantizedRows(self._plan.add_buffer(width), self._plan.add_buffer(4))

    def embed(
        self,
        tokens: Array,
        positions: Array | None,
        segments: Array | None,
        norm: NormWeights | None,
        *,
        target: int,
    ) -> None:
        """Add the sum of the batch's rows of three tables, normalized if there is a norm."""
        self._kept_alive += [tokens, positions, segments, norm]
        self._embeds = True
        tables = [
            (address(table), 0 if table is None else len(table))
            for table in (tokens, positions, segments)
        ]
        weight, bias = (None, None) if norm is None else (norm.weight, norm.bias)
        self._plan.embed(
            *(self._half, *tables[0], *tables[1], *tables[2]),
            *(address(weight), address(bias), tokens.shape[1]),
            *(0.0 if norm is None else norm.spec.epsilon, target),
        )

    def widen(self, source: int, target: int, width: int) -> None:
        """Add the conversion of bfloat16 rows to float32."""
        self._plan.widen(width, source, target)

    def pool(
        self,
        source: int,
        target: int,
        width: int,
        *,
        mode: str,
        normalized: bool = False,
        wide: bool = False,
    ) -> None:
        """Add pooling of each text's rows to one; ``wide``: of float32 rows in any program."""
        self._plan.pool(self._half and not wide, mode, normalized, width, source, target)

    def dense(self, layer: Dense, source: int, target: int, *, function: str = "none") -> None:
        """Add ``function(source @ weight.T + bias)``."""
        self._kept_alive.append(layer)
        self._plan.packed_linear(
            *(self._half, function, address(layer.content), layer.depth, layer.width),
            *(source, target),
        )

    def quantized_dense(
        self,
        layer: QuantizedDense,
        source: QuantizedRows,
        target: int | QuantizedRows,
        *,
        function: str = "none",
    ) -> None:
        """Add a dense layer in int8; a quantized target gets the result's bytes and scales."""
        self._kept_alive.append(layer)
        self._plan.quantized_linear(
            *(self._half, function, address(layer.content)),
            *(address(layer.scales), address(layer.bias), layer.depth, layer.width),
            *source,
            *((_NONE, *target) if isinstance(target, QuantizedRows) else (target, _NONE, _NONE)),
        )

    def normalize(
        self,
        norm: NormWeights,
        source: int,
        target: int,
        *,
        residual: int | None = None,
        total: int | None = None,
        quantized: QuantizedRows | None = None,
    ) -> None:
        """Add the norm of ``source + residual``.

        ``total``: the buffer for the sum. ``quantized``: quantize the result too.
        """
        self._kept_alive.append(norm)
        self._plan.normalize(
            *(self._half, address(norm.weight), address(norm.bias), len(norm.weight)),
            *(norm.spec.epsilon, norm.spec.centred),
            *(source, _buffer(residual), _buffer(total), target),
            *((_NONE, _NONE) if quantized is None else quantized),
        )

    def activate(
        self, source: int, target: int, width: int, *, function: str, gated: bool = False
    ) -> None:
        """Add an activation; gated: of the first half of 2 ``width``, times the second half."""
        self._plan.activate(self._half, function, gated, width, source, target)

    def add(self, source: int, other: int, target: int, width: int) -> None:
        """Add the sum of two rows."""
        self._plan.add(self._half, width, source, other, target)

    def rotate(self, table_PD: Array, heads: int, *, num_heads: int, row_width: int) -> None:
        """Turn the first ``num_heads`` heads of each row by its position, in place."""
        self._kept_alive.append(table_PD)
        self._turns_heads = True
        head_dim = table_PD.shape[1]
        width = num_heads * head_dim
        self._plan.rotate(self._half, address(table_PD), width, head_dim, row_width, heads)

    def quantize(self, source: int, target: QuantizedRows, width: int) -> None:
        """Quantize rows to bytes with a scale each."""
        self._plan.quantize(self._half, width, source, *target)

    def attention(
        self,
        source: int,
        target: int,
        *,
        num_heads: int,
        head_dim: int,
        scale: float,
        window: int | None,
        alibi_slopes_H: Array | None,
    ) -> None:
        """Add attention; a row of the source holds a token's query, key and value."""
        self._kept_alive.append(alibi_slopes_H)
        self._plan.attention(
            *(self._half, num_heads, head_dim, scale, -1 if window is None else window),
            *(address(alibi_slopes_H), source, target),
        )

    def run(
        self, batch: Batch, output: Array, num_threads: int, *, input_rows: Array | None = None
    ) -> None:
        """Run all operations; ``input_rows``: where the program does not begin with token ids."""
        positions = batch.positions if self._turns_heads else None
        position_ids = batch.position_ids if self._embeds else None
        self._plan.run(
            *(address(input_rows), address(output), address(batch.cu_seqlens)),
            *(address(positions), batch.num_texts, batch.num_tokens, num_threads),
            ids=address(batch.ids),
            type_ids=address(batch.type_ids),
            position_ids=address(position_ids),
        )


def _buffer(number: int | None) -> int:
    return _NONE if number is None else number
