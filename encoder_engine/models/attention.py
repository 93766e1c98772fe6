"""Self-attention as a module: projections, positions (rotary, ALiBi, relative bias) and windows.

Dimensions: T packed tokens, M selected rows, D width, H heads, K heads of keys, R distances.

How it works: one GEMM [T, D] x [D, (H + 2 K) d] makes query, key and value, because one wide
product fills the hardware better than three narrow ones and reads the input once. Norms of query
and key, if any, precede rotary embeddings, which rotate both; ALiBi slopes, a relative bias or
disentangled terms are passed to ``ops.attention``, which adds them to the scores tile by tile, so
no [L, L] matrix is stored unless probabilities are requested. The sequences are packed: attention
runs from ``cu_seqlens[i]`` to ``cu_seqlens[i + 1]`` and never over padding. With ``rows``, only M
query rows are computed, while keys and values come from all T. Global rows (Longformer) are
computed a second time by projections of their own, and replace the windowed result. Tables of
angles and slopes are made in float64 once and shared by all blocks with equal parameters.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.families.rotary import angle_table
from encoder_engine.models.constants import Constant
from encoder_engine.models.linear import Linear, Table
from encoder_engine.models.norm import Norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.families.facts.spec import (
        AttentionSpec,
        DistanceVectorsSpec,
        RelativeBiasSpec,
        RotarySpec,
    )
    from encoder_engine.packing import SelectedRows, Sequences

__all__ = [
    "BlockInputs",
    "DistanceVectors",
    "Distances",
    "RelativeBias",
    "SelfAttention",
    "Weights",
]


# The probabilities of a block's attention, or their statistics.
Weights: TypeAlias = Tensor | ops.AttentionStatistics


class Distances(NamedTuple):
    """Vectors of relative distances.

    vectors_ND: the vectors, [N, D].
    entries_R: the row of ``vectors_ND`` for each distance, int64 [2 r + 1].
    dropout: the dropout of the vectors in training.
    """

    vectors_ND: Tensor
    entries_R: Tensor
    dropout: float


class BlockInputs(NamedTuple):
    """The inputs that all blocks share in one call of an encoder.

    sequences: the offsets of the packed sequences.
    position_ids_T: positions, where any block has rotary embeddings.
    relative_bias_HR: the number added to the scores at each distance, where all blocks share it.
    global_rows: tokens with global attention: they see, and are seen by, their whole sequence.
    distances: vectors of distances, for disentangled attention.
    with_probabilities: blocks return their attention probabilities too.
    marks_TC: boolean properties of the keys, for :func:`encoder_engine.ops.attention_statistics`;
        blocks then return its statistics instead of probabilities.
    """

    sequences: Sequences
    position_ids_T: Tensor | None = None
    relative_bias_HR: Tensor | None = None
    global_rows: SelectedRows | None = None
    distances: Distances | None = None
    with_probabilities: bool = False
    marks_TC: Tensor | None = None


class _Terms(TypedDict):
    scale: float | None
    window: int | None
    causal: bool
    alibi_slopes_H: Tensor | None
    relative_bias_HR: Tensor | None
    disentangled: ops.Disentangled | None


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value are one GEMM.

    ``constants``: tables of angles and slopes, which blocks with equal parameters share.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        *,
        width: int,
        num_positions: int | None = None,
        constants: dict[object, Constant] | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        constants = {} if constants is None else constants
        heads_width = spec.query_width
        self.qkv = Linear(width, heads_width + 2 * spec.key_width, bias=spec.bias)
        self.output = Linear(heads_width, width, bias=spec.output_bias)
        norm, widths = spec.query_key_norm, spec.query_key_widths
        self.query_norm = None if norm is None else Norm(norm, width=widths[0])
        self.key_norm = None if norm is None else Norm(norm, width=widths[1])
        self.global_query = self.global_key_value = None
        if spec.global_projections:
            self.global_query = Linear(width, heads_width, bias=spec.bias)
            self.global_key_value = Linear(width, 2 * heads_width, bias=spec.bias)
        self.distance_key = self.distance_query = None
        if spec.distance_projections and "query" in spec.disentangled:
            self.distance_key = Linear(width, heads_width, bias=False)
        if spec.distance_projections and "key" in spec.disentangled:
            self.distance_query = Linear(width, heads_width)
        bias = spec.relative_bias
        self.relative_bias = None if bias is None else RelativeBias(bias, num_heads=spec.num_heads)
        self.rotary = self.slopes = None
        if spec.rotary is not None:
            assert num_positions is not None
            angles = partial(_angles, spec.rotary, spec.head_dim, num_positions)
            self.rotary = _shared(constants, (spec.rotary, spec.head_dim), angles)
        if spec.alibi_slopes is not None:
            slopes = partial(torch.tensor, spec.alibi_slopes, dtype=torch.float64)
            self.slopes = _shared(constants, spec.alibi_slopes, slopes)

    def forward(
        self, hidden_TD: Tensor, inputs: BlockInputs, rows: SelectedRows | None = None
    ) -> tuple[Tensor, Weights | None]:
        """Return attention's output [T, D], and the attention probabilities or statistics, or None.

        Probabilities are [B, H, L, L]; ``inputs`` says which of the two is requested, if any.
        ``rows``: return only the output of these rows, [M, D], and None; tokens with global
        attention are not allowed then.
        """
        query, key, value = self._heads_of(hidden_TD, inputs.position_ids_T)
        terms = _Terms(
            scale=self.spec.scale,
            window=self.spec.window,
            causal=self.spec.causal,
            alibi_slopes_H=None if self.slopes is None else self.slopes(),
            relative_bias_HR=(
                inputs.relative_bias_HR if self.relative_bias is None else self.relative_bias()
            ),
            disentangled=self._disentangled(inputs.distances),
        )
        if rows is not None:
            assert inputs.global_rows is None
            query_MHD = F.embedding(rows.rows, query.flatten(1)).view(-1, *query.shape[1:])
            mixed_MHD = ops.attention(
                *(query_MHD, key, value, inputs.sequences),
                dropout=self._dropout,
                query_rows=rows,
                **terms,
            )
            return self.output(mixed_MHD.flatten(1)), None
        if inputs.marks_TC is not None:
            mixed_THD, statistics = ops.attention_statistics(
                query, key, value, inputs.sequences, inputs.marks_TC, **terms
            )
            return self.output(mixed_THD.flatten(1)), statistics
        everywhere = inputs.global_rows
        mixed_THD = ops.attention(
            *(query, key, value, inputs.sequences),
            dropout=self._dropout,
            global_rows=everywhere,
            **terms,
        )
        mixed_THD = inputs.sequences.zero_padding_rows(mixed_THD)
        probabilities = None
        if inputs.with_probabilities:
            probabilities = ops.attention_probabilities(
                query, key, inputs.sequences, global_rows=everywhere, **terms
            )
        if everywhere is not None:
            mixed_THD, probabilities = self._put_global_rows(
                hidden_TD, everywhere, mixed_THD, probabilities
            )
        return self.output(mixed_THD.flatten(1)), probabilities

    def _heads_of(
        self, hidden_TD: Tensor, position_ids_T: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value as heads: projected, normalized and rotated."""
        projected, rotary = self._project(hidden_TD), self.spec.rotary
        if rotary is None or self.rotary is None:
            query, key, value = self._split(projected)
            return _normalized(self.query_norm, query), _normalized(self.key_norm, key), value
        assert position_ids_T is not None
        turn = ops.Turn(self.rotary(), position_ids_T)
        whole = turn.table_PD.shape[1] == self.spec.head_dim
        if whole and self.query_norm is None and not rotary.turns_values:
            return self._split(projected, turn)
        query, key, value = self._split(projected)
        query, key = _normalized(self.query_norm, query), _normalized(self.key_norm, key)
        if rotary.turns_values:
            query, pair = _turned(query, torch.cat([key, value], dim=1), turn)
            key, value = pair.chunk(2, dim=1)
        else:
            query, key = _turned(query, key, turn)
        return query, key, value

    def _disentangled(self, distances: Distances | None) -> ops.Disentangled | None:
        """Project the distance vectors, by projections of their own or by those of the tokens.

        None if there are no distance vectors or the block does not use them.
        """
        if distances is None or not self.spec.disentangled:
            return None
        vectors_ND = distances.vectors_ND
        if self.training and distances.dropout > 0.0:
            vectors_ND = F.dropout(vectors_ND, distances.dropout)
        terms = self.spec.disentangled
        if self.spec.distance_projections:
            by_key, by_query = self.distance_key, self.distance_query
            return ops.Disentangled(
                None if by_key is None else self._heads(by_key(vectors_ND), 1)[0],
                None if by_query is None else self._heads(by_query(vectors_ND), 1)[0],
                distances.entries_R,
            )
        query, key, _ = self._split(self._project(vectors_ND))
        return ops.Disentangled(
            key if "query" in terms else None,
            query if "key" in terms else None,
            distances.entries_R,
        )

    def _project(self, rows_TD: Tensor) -> Tensor:
        """Return query, key and value side by side, [T, (H + 2 K) d].

        Without ``key_bias``, the key's bias gets a zero gradient.
        """
        layer, first = self.qkv, self.spec.query_width
        if self.spec.key_bias or type(layer) is not Linear or not layer.bias.requires_grad:
            projected: Tensor = layer(rows_TD)
            return projected
        sizes = [first, self.spec.key_width, self.spec.key_width]
        query, key, value = torch.split(layer.bias, sizes)
        return Linear.multiply(rows_TD, layer.weight, torch.cat([query, key.detach(), value]))

    @property
    def _dropout(self) -> float:
        return self.spec.dropout if self.training else 0.0

    def _split(
        self, projected: Tensor, turn: ops.Turn | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Split the projection into heads of query, key and value; ``turn``: rotate them."""
        return ops.split_heads(projected, self.spec.head_dim, self.spec.key_heads, turn)

    def _heads(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        return projected.view(-1, parts, self.spec.num_heads, self.spec.head_dim).unbind(1)

    def _put_global_rows(
        self,
        hidden_TD: Tensor,
        everywhere: SelectedRows,
        mixed_THD: Tensor,
        probabilities: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute tokens with global attention by projections of their own, and replace their rows.

        The replaced rows are those of the output [T, H, D] and of the probabilities, if given.
        """
        assert self.global_query is not None
        assert self.global_key_value is not None
        rows_M = everywhere.rows.long()
        key, value = self._heads(self.global_key_value(hidden_TD), 2)
        (query,) = self._heads(self.global_query(F.embedding(rows_M, hidden_TD)), 1)
        sequences = everywhere.sequences
        seen_MHD = ops.attention(
            query, key, value, sequences, dropout=self._dropout, query_rows=everywhere
        )
        mixed_THD = mixed_THD.index_copy(0, rows_M, seen_MHD)
        if probabilities is not None:
            (query,) = self._heads(self.global_query(hidden_TD), 1)
            seen = ops.attention_probabilities(query, key, sequences)
            owners, places = sequences.sequence_ids[rows_M], sequences.positions[rows_M]
            probabilities[owners, :, places] = seen[owners, :, places]
        return mixed_THD, probabilities


def _angles(rotary: RotarySpec, head_dim: int, num_positions: int) -> Tensor:
    return torch.from_numpy(angle_table(rotary, head_dim, num_positions))


def _normalized(norm: Norm | None, heads_THD: Tensor) -> Tensor:
    if norm is None:
        return heads_THD
    rows: Tensor = norm(heads_THD.reshape(-1, len(norm.weight)))
    return rows.view(heads_THD.shape)


def _turned(query: Tensor, key: Tensor, turn: ops.Turn) -> tuple[Tensor, Tensor]:
    """Rotate query and key: the first features of each head, as many as the angle table has."""
    width = turn.table_PD.shape[1]
    if width == query.shape[2]:
        return ops.rotary(query, key, *turn)
    turned = ops.rotary(query[..., :width], key[..., :width], *turn)
    whole = zip(turned, (query, key), strict=True)
    first, second = (torch.cat([part, heads[..., width:]], dim=2) for part, heads in whole)
    return first, second


def _shared(constants: dict[object, Constant], key: object, make: Callable[[], Tensor]) -> Constant:
    if key not in constants:
        constants[key] = Constant(make)
    return constants[key]


class DistanceVectors(nn.Module):
    """Learned vectors of relative distances, shared by all blocks (DeBERTa)."""

    def __init__(self, spec: DistanceVectorsSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.table = Table(spec.num_vectors, width)
        self.norm = None if spec.norm is None else Norm(spec.norm, width=width)
        entries = partial(ops.log_position_entries, spec.num_buckets, spec.max_distance)
        self.entries = Constant(entries)

    def forward(self) -> Distances:
        """Return the vectors, normalised where the specification has a norm for them."""
        vectors_ND = self.table.weight
        if self.norm is not None:
            vectors_ND = self.norm(vectors_ND)
        return Distances(vectors_ND, self.entries(), self.spec.dropout)


class RelativeBias(nn.Module):
    """A learned number for each bucket of distances and each head.

    All blocks share it (T5), or each has its own (umT5).
    """

    def __init__(self, spec: RelativeBiasSpec, *, num_heads: int) -> None:
        super().__init__()
        self.table = Table(spec.num_buckets, num_heads)
        buckets = partial(ops.relative_position_buckets, spec.num_buckets, spec.max_distance)
        self.buckets = Constant(buckets)

    def forward(self) -> Tensor:
        """Return the number added to the scores at each distance, [H, R]."""
        return F.embedding(self.buckets(), self.table.weight).T
