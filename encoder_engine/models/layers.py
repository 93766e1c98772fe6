"""The layers of an encoder, over packed rows. They hold parameters; the operations compute.

Dimensions: T packed tokens, B sequences, D width, E embedding width, H heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.models.linear import Linear, QuantizedLinear

if TYPE_CHECKING:
    from encoder_engine.models.spec import (
        AttentionSpec,
        BlockSpec,
        EmbeddingSpec,
        EncoderSpec,
        FeedForwardSpec,
    )
    from encoder_engine.packing import PackedBatch, Sequences


class Table(nn.Embedding):
    """One vector for each id."""

    def reset_parameters(self) -> None:
        """Draw the vectors, unless there is nothing yet to draw them into; see :class:`Linear`."""
        if not self.weight.is_meta:
            super().reset_parameters()


class Embedding(nn.Module):
    """Token, position and segment embeddings, normalised, and projected where widths differ."""

    def __init__(self, spec: EmbeddingSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.tokens = Table(spec.vocab_size, spec.width)
        self.positions = Table(spec.num_positions, spec.width)
        self.segments = Table(spec.num_segments, spec.width) if spec.num_segments else None
        self.norm = nn.LayerNorm(spec.width, eps=spec.norm_epsilon)
        self.projection = Linear(spec.width, width) if spec.width != width else None

    def forward(self, batch: PackedBatch) -> Tensor:
        """Embed a batch: [T, D]."""
        places = self._places(batch) if batch.position_ids is None else batch.position_ids
        hidden_TE = ops.embedding(
            batch.input_ids,
            places,
            batch.token_type_ids,
            token_weight_VE=self.tokens.weight,
            position_weight_PE=self.positions.weight,
            segment_weight_SE=None if self.segments is None else self.segments.weight,
            norm_weight_E=self.norm.weight,
            norm_bias_E=self.norm.bias,
            epsilon=self.spec.norm_epsilon,
            dropout=self.spec.dropout if self.training else 0.0,
        )
        if self.projection is None:
            return hidden_TE
        projected_TD: Tensor = self.projection(hidden_TE)
        return projected_TD

    def _places(self, batch: PackedBatch) -> Tensor:
        positions = batch.sequences.positions
        if not self.spec.positions_skip_padding:
            first = self.spec.first_position
            return positions + first if first else positions
        # A text may hold the padding token itself: it takes no position, as in fairseq.
        assert self.spec.padding_id is not None
        padding = torch.eq(batch.input_ids, self.spec.padding_id)
        padding_before = padding.cumsum(0)
        starts = batch.sequences.cu_seqlens[:-1].long()
        before_sequence = torch.cat([padding_before.new_zeros(1), padding_before])[starts]
        skipped = padding_before - before_sequence[batch.sequences.sequence_ids]
        places = positions + self.spec.first_position - skipped
        return places.masked_fill(padding, self.spec.first_position - 1)


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value are one matrix product."""

    def __init__(self, spec: AttentionSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        heads_width = spec.num_heads * spec.head_dim
        self.qkv = Linear(width, 3 * heads_width)
        self.output = Linear(heads_width, width)

    def forward(
        self, hidden_TD: Tensor, sequences: Sequences, *, with_probabilities: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return [T, D], and [B, H, L, L] where the probabilities are asked for."""
        qkv = self.qkv(hidden_TD)
        query, key, value = qkv.view(-1, 3, self.spec.num_heads, self.spec.head_dim).unbind(1)
        dropout = self.spec.dropout if self.training else 0.0
        mixed = ops.attention(query, key, value, sequences, dropout=dropout).flatten(1)
        output_TD = self.output(mixed)
        if not with_probabilities:
            return output_TD, None
        return output_TD, ops.attention_probabilities(query, key, sequences)


class FeedForward(nn.Module):
    """Two dense layers with GELU between."""

    def __init__(self, spec: FeedForwardSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.up: nn.Module = Linear(width, spec.width)
        self.down: nn.Module = Linear(spec.width, width)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Return [T, D]."""
        gelu: ops.Approximation = "tanh" if self.spec.activation == "gelu_tanh" else "none"
        up, down = self.up, self.down
        if isinstance(up, QuantizedLinear) and isinstance(down, QuantizedLinear):
            return down.multiply(*up.requantize(hidden_TD, gelu=gelu), dtype=hidden_TD.dtype)
        lowered_TD: Tensor = down(up(hidden_TD, gelu=gelu))
        return lowered_TD


class Block(nn.Module):
    """One layer of the encoder: attention, then feed-forward, each added and normalised."""

    def __init__(self, spec: BlockSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.attention = SelfAttention(spec.attention, width=width)
        self.attention_norm = nn.LayerNorm(width, eps=spec.norm_epsilon)
        self.feed_forward = FeedForward(spec.feed_forward, width=width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=spec.norm_epsilon)

    def forward(
        self, hidden_TD: Tensor, sequences: Sequences, *, with_probabilities: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return [T, D], and [B, H, L, L] where the probabilities are asked for."""
        mixed, probabilities = self.attention(
            hidden_TD, sequences, with_probabilities=with_probabilities
        )
        hidden_TD = self._add_and_normalise(mixed, hidden_TD, self.attention_norm)
        raised = self.feed_forward(hidden_TD)
        return self._add_and_normalise(raised, hidden_TD, self.feed_forward_norm), probabilities

    def _add_and_normalise(
        self, branch_TD: Tensor, residual_TD: Tensor, norm: nn.LayerNorm
    ) -> Tensor:
        return ops.layer_norm(
            branch_TD,
            norm.weight,
            norm.bias,
            epsilon=self.spec.norm_epsilon,
            residual_TD=residual_TD,
            dropout=self.spec.dropout if self.training else 0.0,
        )


class Pooler(nn.Module):
    """A dense layer and tanh on each sequence's first row."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.dense = Linear(spec.width, spec.width)

    def forward(self, hidden_TD: Tensor, sequences: Sequences) -> Tensor:
        """Return [B, D]."""
        first_BD = ops.pooling(hidden_TD, sequences, mode="cls")
        return torch.tanh(self.dense(first_BD))
