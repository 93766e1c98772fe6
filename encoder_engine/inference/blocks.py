"""Lists an encoder's blocks as steps of a program, and reads their weights.

How it works: a post-norm block is seven operations (four dense layers, attention and two norms); a
pre-norm block adds a sum, a gated feed-forward layer an activation. Each becomes a step over shared
row buffers, one for each name and width, which all blocks reuse. A layer in int8 reads quantized
rows: the norm before a feed-forward layer writes them, and between its two dense layers the rows
stay bytes; attention and the residuals are in the encoder's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.inference.layers import QuantizedDense
from encoder_engine.positions import rotary_table

if TYPE_CHECKING:
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec, EncoderSpec
    from encoder_engine.inference.layers import Dense, NormWeights, Reader
    from encoder_engine.inference.program import Program, QuantizedRows

__all__ = ["BlockBuilder", "BlockWeights", "Constants", "read_block", "unsupported"]

# The extension's names of activations.
FUNCTIONS = {"gelu": "gelu", "gelu_tanh": "gelu_tanh", "silu": "silu", "relu": "relu"}


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockWeights:
    """The weights of one block; ``up``: of a gated layer, both halves."""

    spec: BlockSpec
    qkv: Dense | QuantizedDense
    output: Dense | QuantizedDense
    attention_norm: NormWeights | None
    up: Dense | QuantizedDense
    down: Dense | QuantizedDense
    feed_forward_norm: NormWeights


def read_block(reader: Reader, spec: BlockSpec, place: int) -> BlockWeights:
    """Read the weights of a block."""
    name = f"blocks.{place}"
    up = "halves" if spec.feed_forward.gated else "up"
    feed_forward_norm = reader.norm(f"{name}.feed_forward_norm", spec.norm)
    assert feed_forward_norm is not None
    return BlockWeights(
        spec=spec,
        qkv=reader.block_dense(f"{name}.attention.qkv"),
        output=reader.block_dense(f"{name}.attention.output"),
        attention_norm=reader.norm(
            f"{name}.attention_norm", spec.norm if spec.attention_norm else None
        ),
        up=reader.block_dense(f"{name}.feed_forward.{up}"),
        down=reader.block_dense(f"{name}.feed_forward.down"),
        feed_forward_norm=feed_forward_norm,
    )


class Constants:
    """Tables that follow from the spec, shared by the blocks that need the same ones."""

    def __init__(self, spec: EncoderSpec) -> None:
        self._spec = spec
        self._made: dict[object, Array] = {}

    def angles(self, attention: AttentionSpec) -> Array | None:
        """Return the table of rotary angles, float32 [P, head_dim]; None where there are none."""
        rotary, head_dim = attention.rotary, attention.head_dim
        if rotary is None:
            return None
        if (rotary, head_dim) not in self._made:
            assert self._spec.max_length is not None
            table = rotary_table(
                *(self._spec.max_length, head_dim),
                base=rotary.base * rotary.stretch,
                divisor=rotary.stretch ** (2.0 / head_dim),
            )
            self._made[rotary, head_dim] = table.astype(np.float32)
        return self._made[rotary, head_dim]

    def slopes(self, attention: AttentionSpec) -> Array | None:
        """Return the slopes of ALiBi, float32 [H]; None where there are none."""
        slopes = attention.alibi_slopes
        if slopes is None:
            return None
        return self._made.setdefault(slopes, np.array(slopes, dtype=np.float32))


def unsupported(spec: EncoderSpec) -> str | None:
    """Return the reason why an architecture cannot be listed as steps; None: it can."""
    attention = [block.attention for block in spec.blocks]
    reasons = {
        "a relative bias": spec.relative_bias is not None,
        "disentangled attention": any(one.disentangled for one in attention),
        "a convolution": spec.convolution is not None,
        "projections for global rows": any(one.global_projections for one in attention),
    }
    for name, found in reasons.items():
        if found:
            return f"a compiled encoder has no {name.removeprefix('a ')} yet"
    return None


class BlockBuilder:
    """Adds blocks to a program; one buffer of each name and width is reused by all blocks."""

    def __init__(self, program: Program, constants: Constants, source: int) -> None:
        self._program = program
        self._constants = constants
        self._hidden = source
        self._rows: dict[tuple[str, int], int] = {}
        self._bytes: dict[tuple[str, int], QuantizedRows] = {}

    def add_block(self, block: BlockWeights, target: int | None) -> None:
        """Add a block that writes to ``target``; None: to the buffer that the next block reads."""
        width = len(block.feed_forward_norm.weight)
        target = self._buffer("hidden", width) if target is None else target
        between, projected = self._buffer("between", width), self._buffer("projected", width)
        norm, program = block.attention_norm, self._program
        if block.spec.norm_first:
            normal = self._hidden
            if norm is not None:
                normal = between
                program.normalize(norm, self._hidden, normal)
            self._attention(block, normal, projected)
            total = self._buffer("total", width)
            program.normalize(
                *(block.feed_forward_norm, projected, between), residual=self._hidden, total=total
            )
            self._feed_forward(block, between, projected, None)
            program.add(total, projected, target, width)
        else:
            assert norm is not None
            self._attention(block, self._hidden, projected)
            quantized = None
            if _keeps_bytes(block) and norm.spec.centred:
                quantized = self._quantized_buffer("between", width)
            program.normalize(norm, projected, between, residual=self._hidden, quantized=quantized)
            self._feed_forward(block, between, projected, quantized)
            # A block passes no bytes on: they would be of numbers that are not rounded yet.
            program.normalize(block.feed_forward_norm, projected, target, residual=between)
        self._hidden = target

    def _attention(self, block: BlockWeights, source: int, target: int) -> None:
        spec = block.spec.attention
        width = spec.num_heads * spec.head_dim
        heads, mixed = self._buffer("heads", 3 * width), self._buffer("mixed", width)
        self._dense(block.qkv, source, heads)
        angles = self._constants.angles(spec)
        if angles is not None:
            # Query and key, not value.
            self._program.rotate(angles, heads, num_heads=2 * spec.num_heads, row_width=3 * width)
        self._program.attention(
            *(heads, mixed),
            num_heads=spec.num_heads,
            head_dim=spec.head_dim,
            scale=spec.head_dim**-0.5 if spec.scale is None else spec.scale,
            window=spec.window,
            alibi_slopes_H=self._constants.slopes(spec),
        )
        self._dense(block.output, mixed, target)

    def _feed_forward(
        self, block: BlockWeights, source: int, target: int, quantized: QuantizedRows | None
    ) -> None:
        spec, program = block.spec.feed_forward, self._program
        function = FUNCTIONS[spec.activation]
        up, down = block.up, block.down
        if _keeps_bytes(block):
            assert isinstance(up, QuantizedDense)
            assert isinstance(down, QuantizedDense)
            if quantized is None:
                quantized = self._quantized_buffer("between", up.depth)
                program.quantize(source, quantized, up.depth)
            raised_bytes = self._quantized_buffer("raised", spec.width)
            program.quantized_dense(up, quantized, raised_bytes, function=function)
            program.quantized_dense(down, raised_bytes, target)
            return
        raised = self._buffer("raised", spec.width)
        if spec.gated:
            halves = self._buffer("halves", 2 * spec.width)
            self._dense(up, source, halves)
            program.activate(halves, raised, spec.width, function=function, gated=True)
        elif function == "relu":
            self._dense(up, source, raised)
            program.activate(raised, raised, spec.width, function=function)
        else:
            self._dense(up, source, raised, function=function)
        self._dense(down, raised, target)

    def _dense(
        self, layer: Dense | QuantizedDense, source: int, target: int, *, function: str = "none"
    ) -> None:
        if not isinstance(layer, QuantizedDense):
            self._program.dense(layer, source, target, function=function)
            return
        quantized = self._quantized_buffer("input", layer.depth)
        self._program.quantize(source, quantized, layer.depth)
        self._program.quantized_dense(layer, quantized, target, function=function)

    def _buffer(self, name: str, width: int) -> int:
        if (name, width) not in self._rows:
            self._rows[name, width] = self._program.rows(width)
        return self._rows[name, width]

    def _quantized_buffer(self, name: str, width: int) -> QuantizedRows:
        if (name, width) not in self._bytes:
            self._bytes[name, width] = self._program.quantized_rows(width)
        return self._bytes[name, width]


def _keeps_bytes(block: BlockWeights) -> bool:
    """Return whether the rows between the two dense layers of the feed-forward stay bytes."""
    is_quantized = isinstance(block.up, QuantizedDense) and isinstance(block.down, QuantizedDense)
    spec = block.spec.feed_forward
    return is_quantized and not spec.gated and spec.activation in ("gelu", "gelu_tanh")
