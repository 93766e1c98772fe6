"""The layers of an encoder over packed rows: modules that hold parameters and call ``ops``.

Dimensions: T packed tokens, B sequences, D width, E embedding width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.families.facts.spec import MASKED_IN_TRAINING
from encoder_engine.models.attention import SelfAttention
from encoder_engine.models.linear import Linear, QuantizedLinear, Table
from encoder_engine.models.norm import Norm

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import (
        Activation,
        AttentionSpec,
        BlockSpec,
        ConvolutionSpec,
        EmbeddingSpec,
        EncoderSpec,
        FeedForwardSpec,
    )
    from encoder_engine.models.attention import BlockInputs, Weights
    from encoder_engine.models.constants import Constant
    from encoder_engine.packing import PackedBatch, SelectedRows, Sequences

GELU: dict[Activation, ops.Approximation] = {"gelu": "none", "gelu_tanh": "tanh"}


class Embedding(nn.Module):
    """The sum of token, position and segment embeddings, normalized, and projected if needed."""

    def __init__(self, spec: EmbeddingSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.tokens = Table(spec.vocab_size, spec.width)
        self.positions = Table(spec.num_positions, spec.width) if spec.num_positions else None
        self.segments = Table(spec.num_segments, spec.width) if spec.num_segments else None
        self.norm = None if spec.norm is None else Norm(spec.norm, width=spec.width)
        projected = spec.projected or spec.width != width
        self.projection = Linear(spec.width, width) if projected else None

    def forward(self, batch: PackedBatch) -> Tensor:
        """Return a batch's embedded tokens, [T, D]."""
        norm = self.norm
        hidden_TE = ops.embedding(
            batch.input_ids,
            self._places(batch),
            batch.token_type_ids,
            token_weight_VE=self.tokens.weight,
            position_weight_PE=None if self.positions is None else self.positions.weight,
            segment_weight_SE=None if self.segments is None else self.segments.weight,
            norm_weight_E=None if norm is None else norm.factors_D,
            norm_bias_E=None if norm is None else norm.bias,
            epsilon=0.0 if norm is None else norm.spec.epsilon,
            token_scale_T=self._scales(batch),
            dropout=self.spec.dropout if self.training else 0.0,
        )
        if self.projection is None:
            return hidden_TE
        projected_TD: Tensor = self.projection(hidden_TE)
        return projected_TD

    def _scales(self, batch: PackedBatch) -> Tensor | None:
        """Return the factor on each token's embedding, [T]; None: all are 1."""
        spec, weight = self.spec, self.tokens.weight
        if spec.mask_id is None and spec.scale == 1.0:
            return None
        wide = torch.promote_types(weight.dtype, torch.float32)
        scales_T = torch.full_like(batch.input_ids, spec.scale, dtype=torch.float64)
        if spec.mask_id is not None:
            sequences = batch.sequences
            is_mask = torch.eq(batch.input_ids, spec.mask_id)
            before = F.pad(is_mask.cumsum(0), (1, 0))
            counts = before[sequences.cu_seqlens.long()].diff()
            lengths = sequences.cu_seqlens.diff().clamp(min=1)
            factors = (1.0 - MASKED_IN_TRAINING) / (1.0 - counts.double() / lengths)
            scales_T = scales_T * factors[sequences.sequence_ids]
            scales_T = scales_T.masked_fill(is_mask, 0.0)
        return scales_T.to(wide)

    def _places(self, batch: PackedBatch) -> Tensor | None:
        if self.positions is None:
            return None
        if batch.position_ids is not None:
            return batch.position_ids
        positions = batch.sequences.positions
        if not self.spec.positions_skip_padding:
            first = self.spec.first_position
            return positions + first if first else positions
        # A padding token within a text takes no position, as in fairseq.
        assert self.spec.padding_id is not None
        padding = torch.eq(batch.input_ids, self.spec.padding_id)
        padding_before = padding.cumsum(0)
        starts = batch.sequences.cu_seqlens[:-1].long()
        before_sequence = torch.cat([padding_before.new_zeros(1), padding_before])[starts]
        skipped = padding_before - before_sequence[batch.sequences.sequence_ids]
        places = positions + self.spec.first_position - skipped
        return places.masked_fill(padding, self.spec.first_position - 1)


class FeedForward(nn.Module):
    """Two dense layers with an activation, or a gated one (GeGLU, SwiGLU), between them."""

    def __init__(self, spec: FeedForwardSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.up: nn.Module | None = None
        self.halves: nn.Module | None = None
        if spec.gated:
            # The half that is activated comes first.
            self.halves = Linear(width, 2 * spec.width, bias=spec.up_bias)
        else:
            self.up = Linear(width, spec.width, bias=spec.up_bias)
        self.down: nn.Module = Linear(spec.width, width, bias=spec.down_bias)

    @property
    def reads_bytes(self) -> bool:
        """True if the layer computes in int8 and takes rows of bytes with a scale each."""
        layers = (self.up, self.down)
        is_quantized = all(isinstance(layer, QuantizedLinear) for layer in layers)
        return is_quantized and self.spec.activation in GELU

    def forward(self, hidden_TD: Tensor, quantized: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return [T, D]; ``quantized``: the input after ``ops.quantize_rows``, if available."""
        if self.reads_bytes:
            return self._multiply_bytes(
                *(ops.quantize_rows(hidden_TD) if quantized is None else quantized),
                dtype=hidden_TD.dtype,
            )
        raised_TF = self._raise(hidden_TD)
        if self.training and self.spec.dropout > 0.0:
            raised_TF = F.dropout(raised_TF, self.spec.dropout)
        lowered_TD: Tensor = self.down(raised_TF)
        return lowered_TD

    def _multiply_bytes(self, bytes_TD: Tensor, scale_T: Tensor, *, dtype: torch.dtype) -> Tensor:
        up, down = self.up, self.down
        assert isinstance(up, QuantizedLinear)
        assert isinstance(down, QuantizedLinear)
        raised = up.requantize(bytes_TD, scale_T, gelu=GELU[self.spec.activation])
        return down.multiply(*raised, dtype=dtype)

    def _raise(self, hidden_TD: Tensor) -> Tensor:
        gelu = GELU.get(self.spec.activation)
        if self.halves is not None:
            halves = self.halves(hidden_TD)
            return ops.swiglu(halves) if gelu is None else ops.geglu(halves, approximate=gelu)
        assert self.up is not None
        if gelu is None:
            return torch.relu(self.up(hidden_TD))
        raised_TF: Tensor = self.up(hidden_TD, gelu=gelu)
        return raised_TF


class Block(nn.Module):
    """One layer of the encoder: attention and feed-forward, post-norm or pre-norm."""

    def __init__(
        self,
        spec: BlockSpec,
        *,
        width: int,
        num_positions: int | None = None,
        constants: dict[object, Constant] | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.attention = SelfAttention(
            spec.attention, width=width, num_positions=num_positions, constants=constants
        )
        self.attention_norm = Norm(spec.norm, width=width) if spec.attention_norm else None
        self.feed_forward = FeedForward(spec.feed_forward, width=width)
        self.feed_forward_norm = Norm(spec.norm, width=width)
        self.attention_output_norm = self.feed_forward_output_norm = None
        if spec.output_norms or spec.sum_norm:
            self.attention_output_norm = Norm(spec.norm, width=width)
        if spec.output_norms:
            self.feed_forward_output_norm = Norm(spec.norm, width=width)

    def forward(
        self, hidden_TD: Tensor, inputs: BlockInputs, rows: SelectedRows | None = None
    ) -> tuple[Tensor, Weights | None]:
        """Return the block's output [T, D], and attention probabilities or statistics, or None.

        Probabilities are [B, H, L, L]; ``inputs`` says which of the two is requested, if any.
        ``rows``: return only these rows, [M, D].
        """
        if self.spec.norm_first:
            return self._forward_norm_first(hidden_TD, inputs, rows)
        mixed, probabilities = self.attention(hidden_TD, inputs, rows)
        if rows is not None:
            hidden_TD = F.embedding(rows.rows, hidden_TD)
        if self.attention_output_norm is not None:
            mixed = self.attention_output_norm(
                mixed, residual_TD=hidden_TD, dropout=self._dropout(self.spec.attention)
            )
        assert self.attention_norm is not None
        quantized = None
        if self.feed_forward.reads_bytes and self.spec.norm.centred:
            hidden_TD, quantized = self.attention_norm.quantized(mixed, residual_TD=hidden_TD)
        else:
            hidden_TD = self.attention_norm(
                mixed,
                residual_TD=hidden_TD,
                dropout=0.0 if self.spec.sum_norm else self._dropout(self.spec.attention),
            )
        hidden_TD = self.feed_forward_norm(
            self.feed_forward(hidden_TD, quantized),
            residual_TD=hidden_TD,
            dropout=self._dropout(self.spec.feed_forward),
        )
        return hidden_TD, probabilities

    def _forward_norm_first(
        self, hidden_TD: Tensor, inputs: BlockInputs, rows: SelectedRows | None
    ) -> tuple[Tensor, Weights | None]:
        normal_TD = hidden_TD if self.attention_norm is None else self.attention_norm(hidden_TD)
        mixed, probabilities = self.attention(normal_TD, inputs, rows)
        if self.attention_output_norm is not None:
            mixed = self.attention_output_norm(mixed)
        if rows is not None:
            hidden_TD = F.embedding(rows.rows, hidden_TD)
        normal_TD, hidden_TD = self.feed_forward_norm.with_sum(
            mixed, residual_TD=hidden_TD, dropout=self._dropout(self.spec.attention)
        )
        raised = self.feed_forward(normal_TD)
        if self.feed_forward_output_norm is not None:
            raised = self.feed_forward_output_norm(raised)
        dropout = self._dropout(self.spec.feed_forward)
        return hidden_TD + (F.dropout(raised, dropout) if dropout > 0.0 else raised), probabilities

    def _dropout(self, spec: AttentionSpec | FeedForwardSpec) -> float:
        return spec.output_dropout if self.training else 0.0


class Pooler(nn.Module):
    """A dense layer and tanh, applied to each sequence's first row."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.dense = Linear(spec.width, spec.width)

    def forward(self, hidden_TD: Tensor, sequences: Sequences) -> Tensor:
        """Return the pooled vectors, [B, D]."""
        first_BD = ops.pooling(hidden_TD, sequences, mode="cls")
        return torch.tanh(self.dense(first_BD))


class Convolution(nn.Module):
    """Convolution, activation, residual and norm; sequences are padded with zeros at their ends."""

    def __init__(self, spec: ConvolutionSpec, *, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.kernel = nn.Conv1d(width, width, spec.kernel_size)
        self.norm = Norm(spec.norm, width=width)

    def forward(self, input_TD: Tensor, residual_TD: Tensor, sequences: Sequences) -> Tensor:
        """Return ``norm(residual + activation(dropout(convolution(input))))``, [T, D]."""
        weight_DDK = self.kernel.weight
        columns = torch.cat(self._neighbours(input_TD, sequences), dim=1)
        convolved_TD = ops.linear(columns, weight_DDK.transpose(1, 2).flatten(1), self.kernel.bias)
        if self.training and self.spec.dropout > 0.0:
            convolved_TD = F.dropout(convolved_TD, self.spec.dropout)
        activate = torch.tanh if self.spec.activation == "tanh" else F.gelu
        output_TD: Tensor = self.norm(activate(convolved_TD), residual_TD=residual_TD)
        return output_TD

    def _neighbours(self, input_TD: Tensor, sequences: Sequences) -> list[Tensor]:
        """Return each token's neighbour at every offset of the kernel, as a list of [T, D]."""
        reach = self.spec.kernel_size // 2
        places = sequences.positions
        lengths = sequences.cu_seqlens.diff()[sequences.sequence_ids]
        rows = torch.arange(input_TD.shape[0], device=input_TD.device)
        found = []
        for step in range(-reach, reach + 1):
            there = (places + step >= 0) & (places + step < lengths)
            taken = F.embedding(torch.where(there, rows + step, rows), input_TD)
            found.append(taken * there[:, None])
        return found
