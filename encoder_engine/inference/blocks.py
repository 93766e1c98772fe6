"""Adds an encoder's blocks to a program as native operations, and reads their weights.

How it works: a post-norm block is seven operations (four dense layers, attention and two norms); a
pre-norm block adds a sum. The gate of a feed-forward layer is applied within the matrix product, or
by an operation of its own if its halves do not end at panels of the packed weight. Each operation
works on row buffers, one for each name and width, which all blocks share. A layer in int8 reads
quantized rows. The norm before a plain feed-forward writes quantized rows, and rows stay quantized
between its two dense layers; attention and the residuals are in the encoder's dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine import _native
from encoder_engine.dataclass import dataclass
from encoder_engine.families.checkpoints.parameters import TABLE
from encoder_engine.inference.constants import TermWeights
from encoder_engine.inference.layers import QuantizedDense
from encoder_engine.inference.program import GLOBAL, KEYS, SELECTED, TOKENS, Heads

if TYPE_CHECKING:
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.spec import AttentionSpec, BlockSpec
    from encoder_engine.inference.constants import Constants
    from encoder_engine.inference.layers import Dense, NormWeights, Reader
    from encoder_engine.inference.program import Program, QuantizedRows

__all__ = ["BlockBuilder", "BlockWeights", "read_block"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockWeights:
    """The weights of one block of a compiled encoder.

    up: both halves of a gated feed-forward layer.
    query_norm, key_norm: norms of query and key.
    attention_output_norm, feed_forward_output_norm: norms of the output of attention or
        feed-forward before it is added to the residual. None: the block has no such norm.
    global_query, global_key_value: projections of tokens with global attention, or None.
    distance_key, distance_query: the projections of distance vectors, or None.
    bias_table: the block's own relative bias, a learned number for each bucket of distances and
        head, [N, H]; None: no bias of its own.
    """

    spec: BlockSpec
    qkv: Dense | QuantizedDense
    output: Dense | QuantizedDense
    query_norm: NormWeights | None
    key_norm: NormWeights | None
    global_query: Dense | QuantizedDense | None
    global_key_value: Dense | QuantizedDense | None
    attention_norm: NormWeights | None
    up: Dense | QuantizedDense
    down: Dense | QuantizedDense
    feed_forward_norm: NormWeights
    attention_output_norm: NormWeights | None
    feed_forward_output_norm: NormWeights | None
    distance_key: Dense | QuantizedDense | None
    distance_query: Dense | QuantizedDense | None
    bias_table: Array | None


def read_block(reader: Reader, spec: BlockSpec, place: int) -> BlockWeights:
    """Read the weights of an encoder's block with index ``place``."""
    name = f"blocks.{place}"
    up = "halves" if spec.feed_forward.gated else "up"
    own, of_heads = spec.attention.global_projections, spec.attention.query_key_norm
    of_distances = spec.attention.disentangled if spec.attention.distance_projections else ()
    of_outputs = spec.norm if spec.output_norms else None
    of_attention = spec.norm if spec.sum_norm else of_outputs
    feed_forward_norm = reader.norm(f"{name}.feed_forward_norm", spec.norm)
    assert feed_forward_norm is not None
    return BlockWeights(
        spec=spec,
        qkv=reader.block_dense(f"{name}.attention.qkv"),
        output=reader.block_dense(f"{name}.attention.output"),
        query_norm=reader.norm(f"{name}.attention.query_norm", of_heads),
        key_norm=reader.norm(f"{name}.attention.key_norm", of_heads),
        global_query=reader.block_dense(f"{name}.attention.global_query") if own else None,
        global_key_value=(
            reader.block_dense(f"{name}.attention.global_key_value") if own else None
        ),
        attention_norm=reader.norm(
            f"{name}.attention_norm", spec.norm if spec.attention_norm else None
        ),
        up=reader.block_dense(f"{name}.feed_forward.{up}"),
        down=reader.block_dense(f"{name}.feed_forward.down"),
        feed_forward_norm=feed_forward_norm,
        attention_output_norm=reader.norm(f"{name}.attention_output_norm", of_attention),
        feed_forward_output_norm=reader.norm(f"{name}.feed_forward_output_norm", of_outputs),
        distance_key=(
            reader.block_dense(f"{name}.attention.distance_key")
            if "query" in of_distances
            else None
        ),
        distance_query=(
            reader.block_dense(f"{name}.attention.distance_query")
            if "key" in of_distances
            else None
        ),
        bias_table=(
            None
            if spec.attention.relative_bias is None
            else reader.table(f"{name}.attention.{TABLE}.weight")
        ),
    )


class BlockBuilder:
    """Adds an encoder's blocks to a program; all share one row buffer per name, width and domain.

    ``hidden``: the buffer of the hidden states that the next block reads. A domain is the kind of
    items that have a row: see :class:`Program`.
    """

    def __init__(self, program: Program, constants: Constants, hidden: int) -> None:
        self._program = program
        self._constants = constants
        self.hidden = hidden
        self._rows: dict[tuple[str, int, str], int] = {}
        self._bytes: dict[tuple[str, int, str], QuantizedRows] = {}
        # The domain of the buffers of the operations that are added next.
        self._domain = TOKENS

    def add_block(self, block: BlockWeights, target: int | None, *, selects: bool = False) -> None:
        """Add a block that writes to the buffer ``target``; None: a shared one. The next reads it.

        selects: compute only the program's selected rows; keys and values come from all tokens.
        """
        width = len(block.feed_forward_norm.weight)
        norm, program = block.attention_norm, self._program
        if block.spec.norm_first:
            normal = self.hidden
            if norm is not None:
                normal = self._buffer("between", width)
                program.normalize(norm, self.hidden, normal)
            projected = self._attention(block, normal, selects=selects)
            if block.attention_output_norm is not None:
                program.normalize(block.attention_output_norm, projected, projected)
            residual = self._residual(width)
            total, between = self._buffer("total", width), self._buffer("between", width)
            program.normalize(
                block.feed_forward_norm, projected, between, residual=residual, total=total
            )
            self._feed_forward(block, between, projected, None)
            if block.feed_forward_output_norm is not None:
                program.normalize(block.feed_forward_output_norm, projected, projected)
            target = self._buffer("hidden", width) if target is None else target
            program.add(total, projected, target, width)
        else:
            assert norm is not None
            projected = self._attention(block, self.hidden, selects=selects)
            residual = self._residual(width)
            if block.attention_output_norm is not None:
                summed = block.attention_output_norm
                program.normalize(summed, projected, projected, residual=residual)
            between, quantized = self._buffer("between", width), None
            # The norm quantizes before it rounds, as the module does for a plain layer only.
            is_plain = not block.spec.feed_forward.gated
            if _keeps_bytes(block) and is_plain and norm.spec.centred:
                quantized = self._quantized_buffer("between", width)
            program.normalize(norm, projected, between, residual=residual, quantized=quantized)
            self._feed_forward(block, between, projected, quantized)
            target = self._buffer("hidden", width) if target is None else target
            # A block passes no quantized rows on: the norm would quantize them before rounding.
            program.normalize(block.feed_forward_norm, projected, target, residual=between)
        self.hidden = target
        self._domain = TOKENS

    def _residual(self, width: int) -> int:
        if self._domain == TOKENS:
            return self.hidden
        residual = self._buffer("residual", width)
        self._program.take_rows(self.hidden, residual, width)
        return residual

    def _attention(self, block: BlockWeights, source: int, *, selects: bool) -> int:
        """Add a block's attention and its output layer; return the buffer of the output."""
        spec, program = block.spec.attention, self._program
        width, key_width = spec.query_width, spec.key_width
        whole = width + 2 * key_width
        heads = self._buffer("heads", whole)
        self._dense(block.qkv, source, heads)
        self._normalize_heads(block, heads, whole)
        angles = self._constants.angles(spec)
        if angles is not None:
            assert spec.rotary is not None
            turned = spec.num_heads + spec.key_heads
            turned += spec.key_heads if spec.rotary.turns_values else 0
            program.rotate(angles, spec.head_dim, heads, num_heads=turned, row_width=whole)
        query, keys = heads, self._keys(spec, heads)
        if selects:
            self._domain = SELECTED
            query = self._buffer("heads", whole)
            program.take_rows(heads, query, whole)
        mixed = self._buffer("mixed", width)
        sees_global = program.sees_all is not None
        weights = TermWeights(block.qkv, block.bias_table, block.distance_key, block.distance_query)
        program.attend(
            Heads(query, 0, whole),
            keys,
            keys._replace(first=keys.first + key_width),
            mixed,
            spec,
            terms=self._constants.terms(spec, weights),
            window=spec.window,
            sees_global=sees_global,
        )
        if sees_global:
            self._put_global_rows(block, source, mixed)
        projected = self._buffer("projected", len(block.feed_forward_norm.weight))
        self._dense(block.output, mixed, projected)
        return projected

    def _normalize_heads(self, block: BlockWeights, heads: int, row_width: int) -> None:
        """Add the norms of query and key, in place in the buffer ``heads``, if there are any."""
        spec = block.spec.attention
        for norm, first, num_heads in (
            (block.query_norm, 0, spec.num_heads),
            (block.key_norm, spec.query_width, spec.key_heads),
        ):
            if norm is not None:
                self._program.normalize_heads(
                    norm,
                    Heads(heads, first, row_width),
                    num_heads=num_heads if spec.norm_by_head else 1,
                )

    def _keys(self, spec: AttentionSpec, heads: int) -> Heads:
        """Return where keys and values are; with a shared prefix, add a copy with a row per key."""
        width, whole = spec.query_width, spec.query_width + 2 * spec.key_width
        if not self._program.shares_prefix:
            return Heads(heads, width, whole)
        domain, self._domain = self._domain, KEYS
        keys = self._buffer("keys", 2 * spec.key_width)
        self._domain = domain
        self._program.take_heads(Heads(heads, width, whole), keys, 2 * spec.key_width)
        return Heads(keys, 0, 2 * spec.key_width)

    def _put_global_rows(self, block: BlockWeights, source: int, mixed: int) -> None:
        """Add attention of the global tokens by their own projections, written over ``mixed``."""
        spec, program = block.spec.attention, self._program
        assert block.global_query is not None
        assert block.global_key_value is not None
        width, hidden_width = spec.query_width, block.global_query.depth
        pair = self._buffer("global pair", 2 * width)
        self._dense(block.global_key_value, source, pair)
        self._domain = GLOBAL
        rows, query = self._buffer("source", hidden_width), self._buffer("query", width)
        program.take_rows(source, rows, hidden_width)
        self._dense(block.global_query, rows, query)
        seen = self._buffer("mixed", width)
        program.attend(
            Heads(query, 0, width),
            Heads(pair, 0, 2 * width),
            Heads(pair, width, 2 * width),
            seen,
            replace(spec, scale=None),
        )
        program.put_rows(seen, mixed, width)
        self._domain = TOKENS

    def _feed_forward(
        self, block: BlockWeights, source: int, target: int, quantized: QuantizedRows | None
    ) -> None:
        spec, program = block.spec.feed_forward, self._program
        up, down, function = block.up, block.down, spec.activation
        if _keeps_bytes(block):
            assert isinstance(up, QuantizedDense)
            assert isinstance(down, QuantizedDense)
            if quantized is None:
                quantized = self._quantized_buffer("between", up.depth)
                program.quantize(source, quantized, up.depth)
            raised_bytes = self._quantized_buffer("raised", spec.width)
            program.quantized_dense(
                up, quantized, raised_bytes, function=function, gated=spec.gated
            )
            program.quantized_dense(down, raised_bytes, target)
            return
        raised = self._buffer("raised", spec.width)
        if _gates_at_once(block):
            self._dense(up, source, raised, function=function, gated=True)
        elif spec.gated:
            halves = self._buffer("halves", 2 * spec.width)
            self._dense(up, source, halves)
            program.activate(halves, raised, spec.width, function=function, gated=True)
        else:
            self._dense(up, source, raised, function=function)
        self._dense(down, raised, target)

    def _dense(
        self,
        layer: Dense | QuantizedDense,
        source: int,
        target: int,
        *,
        function: str = "none",
        gated: bool = False,
    ) -> None:
        if not isinstance(layer, QuantizedDense):
            self._program.dense(layer, source, target, function=function, gated=gated)
            return
        quantized = self._quantized_buffer("input", layer.depth)
        self._program.quantize(source, quantized, layer.depth)
        self._program.quantized_dense(layer, quantized, target, function=function, gated=gated)

    def _buffer(self, name: str, width: int) -> int:
        key = (name, width, self._domain)
        if key not in self._rows:
            self._rows[key] = self._program.rows(width, self._domain)
        return self._rows[key]

    def _quantized_buffer(self, name: str, width: int) -> QuantizedRows:
        key = (name, width, self._domain)
        if key not in self._bytes:
            self._bytes[key] = self._program.quantized_rows(width, self._domain)
        return self._bytes[key]


def _keeps_bytes(block: BlockWeights) -> bool:
    """Return whether rows stay quantized between the two dense layers of a block's feed-forward."""
    is_quantized = isinstance(block.up, QuantizedDense) and isinstance(block.down, QuantizedDense)
    spec = block.spec.feed_forward
    if spec.gated:
        return is_quantized and _gates_at_once(block)
    return is_quantized and spec.activation in ("gelu", "gelu_tanh")


def _gates_at_once(block: BlockWeights) -> bool:
    """Return whether the matrix product of a gated layer can multiply its two halves itself.

    Each half must be whole panels of the packed weight.
    """
    spec = block.spec.feed_forward
    return spec.gated and spec.width % _native.PANEL_WIDTH == 0
