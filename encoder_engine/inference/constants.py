"""Computes the tables that attention reads: rotary angles, slopes, biases, distance vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine import _native
from encoder_engine.families.checkpoints.arrays import BFLOAT16, widen
from encoder_engine.families.rotary import float32_angle_table
from encoder_engine.inference.layers import QuantizedDense
from encoder_engine.inference.memory import address
from encoder_engine.inference.program import NO_TERMS, Terms
from encoder_engine.inference.rows import project_rows
from encoder_engine.positions import (
    log_position_entries,
    log_positions_are_settled,
    relative_position_buckets,
    relative_positions_are_settled,
)

if TYPE_CHECKING:
    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.spec import AttentionSpec, EncoderSpec, RelativeBiasSpec
    from encoder_engine.inference.layers import Dense, NormWeights

__all__ = ["Constants", "TermWeights", "unsettled_distances"]


class TermWeights(NamedTuple):
    """The weights of a block from which its attention's additive terms are computed.

    qkv: the projection to query, key and value.
    bias_table: the block's own relative bias by bucket of distances and head, [N, H], or None.
    distance_key, distance_query: the block's own projections of distance vectors, or None.
    """

    qkv: Dense | QuantizedDense
    bias_table: Array | None
    distance_key: Dense | QuantizedDense | None
    distance_query: Dense | QuantizedDense | None


class Constants:
    """Tables that an encoder's attention reads, computed at first use and shared by the blocks.

    bias_table: the relative bias by bucket of distances and head, [N, H]; None: the encoder has no
        bias that all blocks share.
    distance_table: the learned vectors of distances, [N, D], normalized by ``distance_norm``, or
        None.
    """

    def __init__(
        self,
        spec: EncoderSpec,
        *,
        bias_table: Array | None,
        distance_table: Array | None,
        distance_norm: NormWeights | None,
    ) -> None:
        self._spec = spec
        self._bias_table = bias_table
        self._distance_table = distance_table
        self._distance_norm = distance_norm
        self._made: dict[object, Array] = {}
        self._terms: dict[int, Terms] = {}

    def angles(self, attention: AttentionSpec) -> Array | None:
        """Return the table of rotary angles, float32 [P, D]; None without rotary positions."""
        rotary, head_dim = attention.rotary, attention.head_dim
        if rotary is None:
            return None
        if (rotary, head_dim) not in self._made:
            assert self._spec.max_length is not None
            table = float32_angle_table(rotary, head_dim, self._spec.max_length)
            self._made[rotary, head_dim] = table
        return self._made[rotary, head_dim]

    def terms(self, attention: AttentionSpec, block: TermWeights) -> Terms:
        """Return the terms that a block's attention adds to its scores."""
        if id(block.qkv) not in self._terms:
            self._terms[id(block.qkv)] = self._make_terms(attention, block)
        return self._terms[id(block.qkv)]

    def _make_terms(self, attention: AttentionSpec, block: TermWeights) -> Terms:
        terms = NO_TERMS
        if attention.alibi_slopes is not None:
            terms = terms._replace(slopes_H=np.array(attention.alibi_slopes, dtype=np.float32))
        if attention.relative_bias is not None:
            assert block.bias_table is not None
            terms = terms._replace(bias_HR=_bias(attention.relative_bias, block.bias_table))
        elif self._bias_table is not None:
            terms = terms._replace(bias_HR=self._shared_bias())
        if attention.disentangled:
            keys_ND, queries_ND = self._distance_heads(attention, block)
            terms = terms._replace(
                distance_keys_ND=keys_ND if "query" in attention.disentangled else None,
                distance_queries_ND=queries_ND if "key" in attention.disentangled else None,
                entries_R=self._entries(),
            )
        return terms

    def _shared_bias(self) -> Array:
        """Return the bias that all blocks add to the scores at each distance, [H, R]."""
        spec = self._spec.relative_bias
        assert spec is not None
        assert self._bias_table is not None
        if spec not in self._made:
            self._made[spec] = _bias(spec, self._bias_table)
        return self._made[spec]

    def _entries(self) -> Array:
        """Return the row of the distance table for each distance, int32 [R]."""
        spec = self._spec.distance_vectors
        assert spec is not None
        if spec not in self._made:
            entries = log_position_entries(spec.num_buckets, spec.max_distance)
            self._made[spec] = entries.astype(np.int32)
        return self._made[spec]

    def _distance_heads(
        self, attention: AttentionSpec, block: TermWeights
    ) -> tuple[Array | None, Array | None]:
        """Project the vectors of distances for a block: keys and queries, [N, H d].

        The results depend only on the weights, so they are computed once and not in every call.
        """
        vectors_ND = self._distance_vectors()
        if attention.distance_projections:
            by_key, by_query = block.distance_key, block.distance_query
            return (
                None if by_key is None else _multiply(by_key, vectors_ND),
                None if by_query is None else _multiply(by_query, vectors_ND),
            )
        query, key, _ = np.split(_multiply(block.qkv, vectors_ND), 3, axis=1)
        return np.ascontiguousarray(key), np.ascontiguousarray(query)

    def _distance_vectors(self) -> Array:
        table, norm = self._distance_table, self._distance_norm
        assert table is not None
        if norm is None:
            return table
        if "distance vectors" not in self._made:
            normal = np.empty(table.shape, dtype=table.dtype)
            _native.normalize_rows(
                *(table.dtype == BFLOAT16, address(table), 0),
                *(address(norm.factors), address(norm.bias), 0, address(normal), 0, 0),
                *(*table.shape, norm.spec.epsilon, norm.spec.centred, _native.default_threads()),
            )
            self._made["distance vectors"] = normal
        return self._made["distance vectors"]


def _bias(spec: RelativeBiasSpec, table_NH: Array) -> Array:
    """Return the number added to the scores at each distance, float32 [H, R]."""
    buckets = relative_position_buckets(spec.num_buckets, spec.max_distance)
    return np.ascontiguousarray(widen(table_NH)[buckets].T)


def _multiply(layer: Dense | QuantizedDense, rows_ND: Array) -> Array:
    """Return a dense layer's output for rows, in the rows' dtype."""
    half, threads = rows_ND.dtype == BFLOAT16, _native.default_threads()
    if not isinstance(layer, QuantizedDense):
        return project_rows(rows_ND, layer, num_threads=threads)
    output = np.empty((len(rows_ND), layer.width), dtype=rows_ND.dtype)
    sizes = (len(rows_ND), layer.depth, layer.width)
    bytes_ND = np.empty(rows_ND.shape, dtype=np.uint8)
    scales_N = np.empty(len(rows_ND), dtype=np.float32)
    _native.quantize_rows(
        *(half, address(rows_ND), address(bytes_ND), address(scales_N)),
        *(len(rows_ND), layer.depth, threads),
    )
    _native.quantized_linear(
        *(half, "none", address(bytes_ND), address(scales_N), address(layer.content)),
        *(address(layer.scales), address(layer.bias), address(output), 0, 0),
        *(*sizes, threads),
    )
    return output


def unsettled_distances(spec: EncoderSpec) -> str | None:
    """Return why rounding could put a distance into another bucket; None: it cannot."""
    vectors = spec.distance_vectors
    settled = all(
        relative_positions_are_settled(bias.num_buckets, bias.max_distance)
        for bias in spec.relative_biases
    )
    if vectors is not None:
        settled &= log_positions_are_settled(vectors.num_buckets, vectors.max_distance)
    if settled:
        return None
    return (
        "a distance lies on the border of two buckets, where the rounding of PyTorch's logarithm "
        "decides"
    )
