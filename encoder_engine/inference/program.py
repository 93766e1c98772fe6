"""A list of native operations on a batch's rows, built once and run by one native call.

Python calls between the operations would take longer than a short text's matrix products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from encoder_engine import _native
from encoder_engine.inference.memory import address

if TYPE_CHECKING:
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.spec import AttentionSpec
    from encoder_engine.inference.batch import Batch, Rows
    from encoder_engine.inference.layers import Dense, NormWeights, QuantizedDense

__all__ = [
    "GLOBAL",
    "INPUT",
    "KEYS",
    "NO_TERMS",
    "OUTPUT",
    "SELECTED",
    "SEQUENCES",
    "TOKENS",
    "Heads",
    "Program",
    "QuantizedRows",
    "Terms",
]

INPUT, OUTPUT, _NONE = 0, 1, -1
# The domains of buffers: what they have a row for.
TOKENS, SELECTED, GLOBAL, SEQUENCES, KEYS = "tokens", "selected", "global", "sequences", "keys"


class QuantizedRows(NamedTuple):
    """The indices of a program's buffers that hold quantized rows: their bytes, their scales."""

    bytes: int
    scales: int


class Heads(NamedTuple):
    """Where attention heads are: the buffer's index, their first element in a row, row width."""

    buffer: int
    first: int
    row_width: int


class Terms(NamedTuple):
    """The terms that attention adds to its scores.

    slopes_H: float32 [H]; slope times distance is subtracted (ALiBi).
    bias_HR: float32 [H, 2 r + 1], the number to add for each distance (T5).
    distance_keys_ND, distance_queries_ND: vectors of distances, multiplied by query and by key
        (DeBERTa); ``entries_R``, int32 [2 r + 1], has the index of each distance's vector.
    """

    slopes_H: Array | None = None
    bias_HR: Array | None = None
    distance_keys_ND: Array | None = None
    distance_queries_ND: Array | None = None
    entries_R: Array | None = None


NO_TERMS = Terms()


class Program:
    """A list of native operations on buffers of float32 or bfloat16 rows; most methods append one.

    Buffers are named by their indices; ``INPUT`` and ``OUTPUT`` are the caller's. A buffer's domain
    is the kind of items that have a row in it: tokens, selected tokens, global tokens, texts, keys.
    The layers must be in ``dtype``, or int8: nothing is checked here.

    selects: how the rows of the domain ``"selected"`` are chosen; None: no rows are selected.
    sees_all: how the rows of the domain ``"global"``, of tokens with global attention, are chosen;
        None: there are none.
        ``separator_id``: the token that ends a question.
    shares_prefix: the batches' texts begin with a prefix that is computed once.
    """

    def __init__(
        self,
        dtype: str,
        *,
        selects: Rows | None = None,
        sees_all: Rows | None = None,
        separator_id: int | None = None,
        shares_prefix: bool = False,
    ) -> None:
        self.selects, self.sees_all = selects, sees_all
        self.shares_prefix = shares_prefix
        self._separator_id = separator_id
        self._half = dtype == "bfloat16"
        self._item_bytes = 2 if self._half else 4
        self._plan = _native.Plan()
        # Steps hold addresses: these arrays must live as long.
        self._kept_alive: list[object] = []
        self._embeds = self._turns_heads = self._scales_tokens = False

    def rows(self, width: int, domain: str = "tokens") -> int:
        """Add a buffer of rows of ``width`` elements of the program's dtype; return its index.

        ``domain``: the kind of items of which each has a row: ``"tokens"``, ``"selected"`` tokens,
        ``"global"`` tokens, ``"sequences"`` or ``"keys"``.
        """
        return self._plan.add_buffer(width * self._item_bytes, domain)

    def wide_rows(self, width: int, domain: str) -> int:
        """Add a buffer of float32 rows; return its index. ``domain``: see :meth:`rows`."""
        return self._plan.add_buffer(width * 4, domain)

    def quantized_rows(self, width: int, domain: str = "tokens") -> QuantizedRows:
        """Add buffers for rows of ``width`` bytes and for their scales; return the indices."""
        return QuantizedRows(self._plan.add_buffer(width, domain), self._plan.add_buffer(4, domain))

    def embed(
        self,
        tokens: Array,
        positions: Array | None,
        segments: Array | None,
        norm: NormWeights | None,
        *,
        target: int,
        scaled: bool = False,
    ) -> None:
        """Append the embedding: the sum of a row of each table per token, and the norm, if any.

        ``scaled``: the rows of ``tokens`` are multiplied by the batch's :attr:`Batch.token_scales`.
        """
        self._kept_alive += [tokens, positions, segments, norm]
        self._embeds, self._scales_tokens = True, scaled
        tables = [
            (address(table), 0 if table is None else len(table))
            for table in (tokens, positions, segments)
        ]
        weight, bias = (None, None) if norm is None else (norm.factors, norm.bias)
        self._plan.embed(
            *(self._half, *tables[0], *tables[1], *tables[2]),
            *(address(weight), address(bias), tokens.shape[1]),
            *(0.0 if norm is None else norm.spec.epsilon, target, scaled),
        )

    def widen(self, source: int, target: int, width: int) -> None:
        """Append the conversion of bfloat16 rows to float32."""
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
        """Append the pooling of each text's rows to one row; ``wide``: the rows are float32."""
        self._plan.pool(self._half and not wide, mode, normalized, width, source, target)

    def dense(
        self, layer: Dense, source: int, target: int, *, function: str = "none", gated: bool = False
    ) -> None:
        """Append a dense layer: ``target = function(source @ weight.T + bias)``.

        gated: ``target = function(first half) * second half`` of the layer's output instead; a half
        must be whole panels of the packed weight.
        """
        self._kept_alive.append(layer)
        width = layer.width // 2 if gated else layer.width
        self._plan.packed_linear(
            *(self._half, function, address(layer.content), layer.depth, width),
            *(source, target),
            gated=gated,
        )

    def quantized_dense(
        self,
        layer: QuantizedDense,
        source: QuantizedRows,
        target: int | QuantizedRows,
        *,
        function: str = "none",
        gated: bool = False,
    ) -> None:
        """Append a dense layer in int8; a quantized target gets the result's bytes and scales.

        gated: see :meth:`dense`.
        """
        self._kept_alive.append(layer)
        width = layer.width // 2 if gated else layer.width
        self._plan.quantized_linear(
            *(self._half, function, address(layer.content)),
            *(address(layer.scales), address(layer.bias), layer.depth, width),
            *source,
            *((_NONE, *target) if isinstance(target, QuantizedRows) else (target, _NONE, _NONE)),
            gated=gated,
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
        """Append the norm of the rows ``source + residual``.

        ``total``: the buffer for the sum. ``quantized``: buffers for the norm's quantized result.
        """
        self._kept_alive.append(norm)
        self._plan.normalize(
            *(self._half, address(norm.factors), address(norm.bias), len(norm.weight)),
            *(norm.spec.epsilon, norm.spec.centred),
            *(source, _buffer(residual), _buffer(total), target),
            *((_NONE, _NONE) if quantized is None else quantized),
        )

    def normalize_heads(self, norm: NormWeights, heads: Heads, *, num_heads: int) -> None:
        """Append a norm, in place, of each of ``num_heads`` heads of a row by itself."""
        self._kept_alive.append(norm)
        self._plan.normalize_heads(
            *(self._half, address(norm.factors), address(norm.bias), len(norm.weight), num_heads),
            *(heads.row_width, heads.first, norm.spec.epsilon, norm.spec.centred, heads.buffer),
        )

    def activate(
        self, source: int, target: int, width: int, *, function: str, gated: bool = False
    ) -> None:
        """Append an activation of rows of ``width``.

        ``gated``: source rows are 2 ``width`` wide: ``function(first half) * second half``.
        """
        self._plan.activate(self._half, function, gated, width, source, target)

    def add(self, source: int, other: int, target: int, width: int) -> None:
        """Append the sum of two buffers' rows, written to ``target``."""
        self._plan.add(self._half, width, source, other, target)

    def rotate(
        self, table_PD: Array, head_dim: int, heads: int, *, num_heads: int, row_width: int
    ) -> None:
        """Append the rotary embedding, in place, of the first ``num_heads`` heads of each row.

        It rotates the first features of each head, as many as the table has.
        """
        self._kept_alive.append(table_PD)
        self._turns_heads = True
        self._plan.rotate(
            *(self._half, address(table_PD), num_heads * head_dim, head_dim, row_width, heads),
            turned=table_PD.shape[1],
        )

    def quantize(self, source: int, target: QuantizedRows, width: int) -> None:
        """Append the quantization of rows to 8-bit integers with a scale per row."""
        self._plan.quantize(self._half, width, source, *target)

    def attend(
        self,
        query: Heads,
        key: Heads,
        value: Heads,
        target: int,
        spec: AttentionSpec,
        *,
        terms: Terms = NO_TERMS,
        window: int | None = None,
        sees_global: bool = False,
    ) -> None:
        """Append attention of the query's rows over each text's keys and values.

        sees_global: queries attend to the text's global tokens beyond the window too.
        """
        self._kept_alive.append(terms)
        self._plan.attend(
            *(self._half, spec.num_heads, spec.key_heads, spec.head_dim),
            spec.head_dim**-0.5 if spec.scale is None else spec.scale,
            *(query, key, value, target),
            window=-1 if window is None else window,
            causal=spec.causal,
            alibi_slopes=address(terms.slopes_H),
            relative_bias=address(terms.bias_HR),
            bias_reach=0 if terms.bias_HR is None else terms.bias_HR.shape[1] // 2,
            distance_keys=_vectors(terms.distance_keys_ND, spec),
            distance_queries=_vectors(terms.distance_queries_ND, spec),
            entries=address(terms.entries_R),
            entries_reach=0 if terms.entries_R is None else len(terms.entries_R) // 2,
            sees_global=sees_global,
        )

    def take_rows(self, source: int, target: int, width: int) -> None:
        """Append a gather: of the rows of all tokens, those of the domain of ``target``."""
        self._plan.take_rows(self._half, width, source, target)

    def take_all(self, source: int, width: int, target: int | None) -> int:
        """Append a copy of each text's rows, with the shared prefix in each; return its buffer."""
        target = self.rows(width, KEYS) if target is None else target
        self._plan.take_rows(self._half, width, source, target, rows=KEYS)
        return target

    def take_heads(self, source: Heads, target: int, width: int) -> None:
        """Append a gather of ``width`` elements of each row, for the domain of ``target``."""
        self._plan.take_heads(self._half, width, source, target)

    def put_rows(self, source: int, target: int, width: int) -> None:
        """Append a scatter of selected or global rows over the rows of all tokens in ``target``."""
        self._plan.put_rows(self._half, width, source, target)

    def take_neighbours(self, source: int, target: int, width: int, kernel_size: int) -> None:
        """Append the joining of each token's ``kernel_size`` neighbours; zeros beyond the text."""
        self._plan.take_neighbours(self._half, width, kernel_size, source, target)

    def run(
        self, batch: Batch, output: Array, num_threads: int, *, input_rows: Array | None = None
    ) -> None:
        """Run all operations on a batch; the result is written to ``output``.

        ``input_rows``: the input of a program that starts from rows instead of token ids.
        """
        positions = batch.positions if self._turns_heads else None
        position_ids = batch.position_ids if self._embeds else None
        scales = batch.token_scales if self._scales_tokens else None
        selected = cu_selected = everywhere = cu_global = selected_keys = None
        if self.selects is not None:
            selected, cu_selected = batch.selected(self.selects)
        if self.sees_all is not None:
            everywhere, cu_global = batch.selected(self.sees_all, self._separator_id)
        cu_seqlens = batch.cu_keys
        keys = batch.keys
        if keys is not None and selected is not None:
            selected_keys = keys.of_tokens[selected]
        self._plan.run(
            *(address(input_rows), address(output), address(cu_seqlens)),
            *(address(positions), len(cu_seqlens) - 1, batch.num_tokens, num_threads),
            ids=address(batch.ids),
            type_ids=address(batch.type_ids),
            position_ids=address(position_ids),
            selected_rows=address(selected),
            cu_selected=address(cu_selected),
            global_rows=address(everywhere),
            cu_global=address(cu_global),
            token_scales=address(scales),
            key_tokens=0 if keys is None else address(keys.tokens),
            cu_keys=0 if keys is None else address(keys.starts),
            token_keys=0 if keys is None else address(keys.of_tokens),
            selected_keys=address(selected_keys),
        )


def _vectors(vectors_ND: Array | None, spec: AttentionSpec) -> tuple[int, int, int]:
    """Return the vectors' address, and the strides from one to the next and from head to head.

    Strides are in elements. All are 0 for None.
    """
    if vectors_ND is None:
        return (0, 0, 0)
    return (address(vectors_ND), vectors_ND.shape[1], spec.head_dim)


def _buffer(number: int | None) -> int:
    return _NONE if number is None else number
