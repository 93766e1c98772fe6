"""The network of an encoder: packed tokens in, packed vectors out; one module for every family.

How it works: a batch is checked and moved to the weights' device, and embedded to [T, D], where T
counts tokens without padding. Every block maps [T, D] to [T, D]; families differ only in the values
of their spec. Each layer calls an operation of ``ops``; for inference on a CPU,
:meth:`Encoder.compile_for_inference` lists all operations as one native call. With ``rows``, the
last block computes its queries, output and feed-forward for these M rows only: masked tokens, or
one row a text for a pooler. A final norm and the pooler follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.families.facts.unattended import refuse_unattended
from encoder_engine.models.attention import BlockInputs, DistanceVectors, RelativeBias, Weights
from encoder_engine.models.init import initialise
from encoder_engine.models.layers import Block, Convolution, Embedding, Pooler
from encoder_engine.models.linear import Linear, QuantizedLinear, replace_layers
from encoder_engine.models.norm import Norm
from encoder_engine.models.placement import check_quantizable
from encoder_engine.packing import PackedBatch, SelectedRows, Sequences, pad
from encoder_engine.packing.batch import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models.constants import Constant

__all__ = ["EncoderOutput", "Network"]

# The most tokens of a sequence where the model states no limit.
NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class EncoderOutput:
    """The packed output of an encoder: T tokens, B sequences, D width, H heads, L longest.

    last_hidden_state: [T, D].
    sequences: the offsets of the sequences among the rows.
    pooler_output: [B, D], or None without a pooler.
    hidden_states: on request, the output of the embedding and of each block, [T, D] each; the last
        one after the final norm, if there is one.
    attentions: on request, each block's attention probabilities, [B, H, L, L] each.
    """

    last_hidden_state: Tensor
    sequences: Sequences
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None

    def padded(self, length: int | None = None) -> Tensor:
        """Return ``last_hidden_state`` padded with zeros, [B, ``length``, D]; None: the longest."""
        return pad(self.last_hidden_state, self.sequences, length=length)


torch.export.register_dataclass(
    EncoderOutput, serialized_type_name="encoder_engine.models.EncoderOutput"
)


class Network(nn.Module):
    """A bidirectional transformer encoder over packed batches, randomly initialized.

    ``config``: the Hugging Face configuration that ``spec`` was read from, if any.
    """

    def __init__(self, spec: EncoderSpec, *, config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.config: dict[str, Any] = dict(config or {})
        self.embedding = Embedding(spec.embedding, width=spec.width)
        constants: dict[object, Constant] = {}
        self.blocks = nn.ModuleList(
            Block(block, width=spec.width, num_positions=spec.max_length, constants=constants)
            for block in spec.blocks
        )
        self.relative_bias = (
            None
            if spec.relative_bias is None
            else RelativeBias(spec.relative_bias, num_heads=spec.num_heads)
        )
        self.distance_vectors = (
            None
            if spec.distance_vectors is None
            else DistanceVectors(spec.distance_vectors, width=spec.width)
        )
        self.convolution = (
            None if spec.convolution is None else Convolution(spec.convolution, width=spec.width)
        )
        self.final_norm = (
            None if spec.final_norm is None else Norm(spec.final_norm, width=spec.width)
        )
        self.pooler = Pooler(spec) if spec.pooler else None
        initialise(self, spec)

    @property
    def device(self) -> torch.device:
        """The device of the encoder's weights."""
        return self.embedding.tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the encoder's weights."""
        return self.embedding.tokens.weight.dtype

    @property
    def quantization(self) -> str | None:
        """``"int8"`` if the blocks' dense layers are quantized, else None."""
        quantized = any(isinstance(module, QuantizedLinear) for module in self.blocks.modules())
        return "int8" if quantized else None

    def quantize(self) -> Self:
        """Quantize the blocks' dense layers to 8-bit integers, in place and irreversibly.

        Weights are rounded once, to 255 steps per output feature; activations at every call, to 255
        steps per row. Embeddings, norms, attention and the pooler keep their dtype. A quantized
        encoder runs on a CPU only. Raises :class:`UnsupportedFeatureError` for weights that are not
        float32 or bfloat16 on a CPU.
        """
        check_quantizable(self.device, self.dtype)
        for block in self.blocks:
            replace_layers(block, Linear, Linear.quantize)
        return self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Switch between training mode, with dropout, and evaluation mode.

        Raises :class:`UnsupportedFeatureError` for a quantized encoder.
        """
        if mode and self.quantization is not None:
            raise UnsupportedFeatureError("an encoder in 8-bit integers cannot be trained")
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        if self.quantization is not None:
            raise UnsupportedFeatureError(
                "an encoder in 8-bit integers can be neither moved nor cast; load it again with "
                "the device and dtype you need"
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(
        self,
        batch: PackedBatch,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        output_pooled: bool = True,
        global_rows: SelectedRows | None = None,
        rows: SelectedRows | None = None,
    ) -> EncoderOutput:
        """Encode a packed batch.

        output_hidden_states: return the output of the embedding and of every block.
        output_attentions: return every block's attention probabilities.
        output_pooled: False skips the pooler.
        global_rows: rows that attend to, and are attended by, their whole sequence; for blocks with
            a window and ``global_projections`` (Longformer).
        rows: the M rows to return; the last block computes no others, unless hidden states,
            attentions or global rows are requested. The pooler takes the first of these rows in
            each sequence.

        ``torch.compile(encoder, fullgraph=True)`` and ``torch.export.export`` compile the encoder
        as one graph for any number of tokens and sequences, except with ``output_attentions``,
        whose shape depends on the lengths. The dynamic shapes of a batch with token types are, in
        order, ids, token types, positions and offsets: ``{"batch": [{0: tokens}, {0: tokens}, None,
        [{0: offsets}, {0: offsets}]]}`` with ``offsets = Dim("offsets", min=3)``.

        Raises :class:`TokenIdError` for an id outside the vocabulary, :class:`SequenceLengthError`
        for a sequence longer than the position table, :class:`ShapeError` for rows or global rows
        of another batch, and :class:`UnsupportedFeatureError` for positions or global rows that
        this encoder does not use.
        """
        checked = self._checked(batch)
        if rows is not None:
            rows.check_of(checked.sequences)
        inputs = self._block_inputs(checked, output_attentions, global_rows)
        last = self._selecting_place(inputs, output_hidden_states) if rows is not None else None
        hidden_TD = self.embedding(checked)
        hidden_states, attentions = self._call_blocks(
            hidden_TD, inputs, rows, last, keep=output_hidden_states
        )
        hidden_states[-1] = hidden_TD = self._finish(hidden_states[-1])
        sequences = checked.sequences
        if rows is not None:
            hidden_TD = hidden_TD if last is not None else F.embedding(rows.rows, hidden_TD)
            sequences = rows.within
        pooled_BD = None
        if self.pooler is not None and output_pooled:
            pooled_BD = self.pooler(hidden_TD, sequences)
        return EncoderOutput(
            last_hidden_state=hidden_TD,
            # In a compiled graph the checked layout is local to the graph.
            sequences=batch.sequences
            if torch.compiler.is_compiling() and rows is None
            else sequences,
            pooler_output=pooled_BD,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=_probabilities(attentions) if output_attentions else None,
        )

    def encode_unattended(self, batch: PackedBatch, unattended: Sequence[int]) -> Tensor:
        """Encode a batch in which no token attends to each sequence's last tokens, [T, D].

        ``unattended``: the number of these last tokens in each sequence. They attend to the tokens
        before the first of them, like the mask tokens of ColBERT's queries. Raises
        :class:`UnsupportedFeatureError` where :func:`refuse_unattended` gives a reason.
        """
        reason = refuse_unattended(self.spec, batch.sequences.max_seqlen)
        if reason is not None:
            raise UnsupportedFeatureError(reason)
        checked = self._checked(batch)
        rows = SelectedRows.of_unattended(checked.sequences, unattended)
        inputs = self._block_inputs(checked, False, None)._replace(sequences=rows.sequences)
        hidden_TD = self.embedding(checked)
        for index in self._order:
            hidden_TD, _ = self.blocks[index](hidden_TD, inputs, rows)
        return self._finish(hidden_TD)

    @torch.no_grad()
    def attention_statistics(
        self, batch: PackedBatch, marks_TC: Tensor
    ) -> tuple[ops.AttentionStatistics, ...]:
        """Return the statistics of every block's attention, in memory that grows with T.

        marks_TC: bool [T, C], properties of each token as a key; see ``ops.attention_statistics``.
        """
        checked = self._checked(batch)
        inputs = self._block_inputs(checked, False, None)._replace(
            marks_TC=marks_TC.to(self.device)
        )
        _, found = self._call_blocks(self.embedding(checked), inputs, None, None, keep=False)
        return tuple(one for one in found if isinstance(one, ops.AttentionStatistics))

    def _call_blocks(
        self,
        embedded_TD: Tensor,
        inputs: BlockInputs,
        rows: SelectedRows | None,
        last: int | None,
        *,
        keep: bool,
    ) -> tuple[list[Tensor], list[Weights]]:
        """Return the last hidden state, with ``keep`` all of them, and requested attention weights.

        The block at index ``last`` of the order computes only ``rows``.
        """
        hidden_states = [embedded_TD]
        attentions: list[Weights] = []
        for place, index in enumerate(self._order):
            selected = rows if place == last else None
            hidden_TD, probabilities = self.blocks[index](hidden_states[-1], inputs, selected)
            if place == 0 and self.convolution is not None:
                hidden_TD = self.convolution(embedded_TD, hidden_TD, inputs.sequences)
            if keep:
                hidden_states.append(hidden_TD)
            else:
                hidden_states = [hidden_TD]
            if probabilities is not None:
                attentions.append(probabilities)
        return hidden_states, attentions

    @property
    def _order(self) -> tuple[int, ...]:
        order = self.spec.order
        return tuple(range(len(self.spec.blocks))) if order is None else order

    def _selecting_place(self, inputs: BlockInputs, output_hidden_states: bool) -> int | None:
        """Return the index of the block that computes only ``rows``; None: select at the end."""
        last = len(self._order) - 1
        whole = inputs.with_probabilities or output_hidden_states or inputs.global_rows is not None
        convolved_last = self.convolution is not None and last == 0
        return None if whole or convolved_last or last < 0 else last

    def _finish(self, hidden_TD: Tensor) -> Tensor:
        if self.final_norm is not None:
            hidden_TD = self.final_norm(hidden_TD)
        if self.training and self.spec.final_dropout > 0.0:
            hidden_TD = F.dropout(hidden_TD, self.spec.final_dropout)
        return hidden_TD

    def _block_inputs(
        self, batch: PackedBatch, with_probabilities: bool, global_rows: SelectedRows | None
    ) -> BlockInputs:
        if global_rows is not None and not self._has_global_rows:
            raise UnsupportedFeatureError(
                "global_rows need blocks with a window and projections for global rows; a "
                f"{self.spec.model_type} has none"
            )
        positions = None
        if self._uses_rotary:
            positions = batch.position_ids
            positions = batch.sequences.positions if positions is None else positions
        return BlockInputs(
            sequences=batch.sequences,
            position_ids_T=positions,
            relative_bias_HR=None if self.relative_bias is None else self.relative_bias(),
            global_rows=None if global_rows is None else global_rows.to(batch.device),
            distances=None if self.distance_vectors is None else self.distance_vectors(),
            with_probabilities=with_probabilities,
        )

    @property
    def _uses_rotary(self) -> bool:
        return any(block.attention.rotary is not None for block in self.spec.blocks)

    @property
    def _has_global_rows(self) -> bool:
        return any(block.attention.global_projections for block in self.spec.blocks)

    def _checked(self, batch: PackedBatch) -> PackedBatch:
        return self.check_batch(batch).to(self.device)

    def check_batch(self, batch: PackedBatch) -> PackedBatch:
        """Check a batch, on its own device, against the encoder's tables, and return it.

        Raises what :meth:`forward` raises for a batch, and ``TypeError`` for what is no batch.
        """
        if not isinstance(batch, PackedBatch):
            raise TypeError(
                f"an encoder takes a PackedBatch, got {type(batch).__name__}; "
                "use Tokenizer.encode_batch(texts).to_packed(device), packing.pack or packing.unpad"
            )
        embedding = self.spec.embedding
        longest = NO_LIMIT if self.spec.max_length is None else self.spec.max_length
        if batch.position_ids is not None and not (embedding.num_positions or self._uses_rotary):
            raise UnsupportedFeatureError(
                f"a {self.spec.model_type} uses distances between tokens, not positions; leave out "
                "position_ids"
            )
        limits = Limits(
            vocab_size=embedding.vocab_size,
            num_segments=embedding.num_segments,
            num_positions=embedding.num_positions or longest,
            max_length=longest,
        )
        return batch.checked(limits)


def _probabilities(found: Sequence[Weights]) -> tuple[Tensor, ...]:
    return tuple(one for one in found if isinstance(one, Tensor))
