"""The network of an encoder: packed tokens in, packed vectors out; one module for every family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.models.attention import DistanceVectors, RelativeBias, Surroundings
from encoder_engine.models.convolution import Convolution
from encoder_engine.models.init import initialise
from encoder_engine.models.layers import Block, Embedding, Pooler
from encoder_engine.models.linear import (
    Linear,
    PackedLinear,
    QuantizedLinear,
    replace_layers,
)
from encoder_engine.models.norm import Norm
from encoder_engine.models.placement import check_quantizable
from encoder_engine.models.plan import Planner
from encoder_engine.packing import PackedBatch, Sequences, pad
from encoder_engine.packing.batch import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models.constants import Constant
    from encoder_engine.packing import SelectedRows

__all__ = ["EncoderOutput", "Network"]

# Tokens of a sequence where nothing says how many there may be.
NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class EncoderOutput:
    """What an encoder returns, packed: T tokens, B sequences, D width, H heads, L longest.

    ``last_hidden_state`` [T, D]; ``pooler_output`` [B, D] or None. Where asked for:
    ``hidden_states``, the embedding's and each block's output, [T, D] each; ``attentions``, each
    block's attention probabilities, [B, H, L, L] each.
    """

    last_hidden_state: Tensor
    sequences: Sequences
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None

    def padded(self, length: int | None = None) -> Tensor:
        """Return ``last_hidden_state`` as [B, L, D], zero where there is no token."""
        return pad(self.last_hidden_state, self.sequences, length=length)


torch.export.register_dataclass(
    EncoderOutput, serialized_type_name="encoder_engine.models.EncoderOutput"
)


class Network(nn.Module):
    """A bidirectional transformer encoder over packed batches, randomly initialised.

    ``config`` is the Hugging Face configuration that ``spec`` was read from, if there is one.
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
        # Of a packed encoder, the names of what was no constant before.
        self._trainable: set[str] = set()
        self._planner = Planner()
        initialise(self, spec)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.embedding.tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' type."""
        return self.embedding.tokens.weight.dtype

    @property
    def packable(self) -> bool:
        """Whether :meth:`pack` can take this encoder's device and type."""
        dtype = str(self.dtype)
        told = dict(ops.explain("packed_linear", device=self.device.type, dtype=dtype))
        return None in (told["native"], told["aten"])

    @property
    def packed(self) -> bool:
        """Whether the dense layers are laid out for inference on this CPU."""
        return any(isinstance(module, PackedLinear) for module in self.modules())

    def pack(self) -> Self:
        """Lay the dense layers' weights out for this CPU's matrix products, in place.

        It then infers faster and takes no more memory, but cannot be trained before
        :meth:`unpack`; saving and pickling work as ever, and what is moved or cast is packed
        again where it can be. For float32 and bfloat16 on a CPU that multiplies them, see
        :attr:`packable`; raises :class:`ImplementationError` for another.
        """
        if not self.packed:
            self._trainable = {name for name, p in self.named_parameters() if p.requires_grad}
        replace_layers(self, Linear, Linear.pack)
        return self.eval().requires_grad_(False)

    def unpack(self) -> Self:
        """Undo :meth:`pack`: every weight is again what it was, bit for bit, frozen ones frozen."""
        if self.packed:
            replace_layers(self, PackedLinear, PackedLinear.unpack)
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name in self._trainable)
        return self

    @property
    def quantization(self) -> str | None:
        """``"int8"`` where the blocks' dense layers are in 8-bit integers."""
        quantized = any(isinstance(module, QuantizedLinear) for module in self.blocks.modules())
        return "int8" if quantized else None

    def quantize(self) -> Self:
        """Round the blocks' dense layers to 8-bit integers, in place; it cannot be undone.

        Weights are rounded once, to 255 steps for each feature out; activations as they come, to
        255 steps for each row. Embeddings, norms, attention and a pooler stay as they are. The
        encoder then infers on a CPU only. In evaluation mode, float32 or bfloat16; raises
        :class:`UnsupportedFeatureError` for another.
        """
        check_quantizable(self.device, self.dtype)
        self.unpack()
        for block in self.blocks:
            replace_layers(block, Linear, Linear.quantize)
        return self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Turn dropout on or off.

        Raises :class:`UnsupportedFeatureError` for an encoder that is packed or quantized.
        """
        if mode and self.packed:
            raise UnsupportedFeatureError("a packed encoder cannot be trained; call unpack() first")
        if mode and self.quantization is not None:
            raise UnsupportedFeatureError("an encoder in 8-bit integers cannot be trained")
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        if self.quantization is not None:
            raise UnsupportedFeatureError(
                "an encoder in 8-bit integers can be neither moved nor cast; load it as wanted"
            )
        packed = self.packed
        self.unpack()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self.pack() if packed and self.packable else self

    def forward(
        self,
        batch: PackedBatch,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        output_pooled: bool = True,
        global_rows: SelectedRows | None = None,
        rows: SelectedRows | None = None,
    ) -> EncoderOutput:
        """Encode a packed batch; ``output_pooled`` False leaves the pooler out.

        ``rows``: those of the batch's M rows that somebody asks for; what comes out has no others,
        and the last block computes no others. The pooler then takes each sequence's first of them.

        ``global_rows``: rows that see all of their sequence, and are seen by all of it, in an
        encoder whose blocks have a window and ``global_projections`` (Longformer).

        ``torch.compile(encoder, fullgraph=True)`` and ``torch.export.export`` take it whole, with
        any number of tokens and sequences, but for ``output_attentions``, whose shape is not known
        before the lengths are. Dynamic shapes of a batch with token types are, in order, ids, token
        types, positions and layout: ``{"batch": [{0: tokens}, {0: tokens}, None, [{0: offsets}, {0:
        offsets}]]}`` with ``offsets = Dim("offsets", min=3)``.

        Raises :class:`TokenIdError` for an id outside the vocabulary,
        :class:`SequenceLengthError` for a sequence the position table cannot place,
        :class:`ShapeError` for rows or global rows of another batch, and
        :class:`UnsupportedFeatureError` for positions or global rows that this encoder has no use
        of.
        """
        checked = self._checked(batch)
        if rows is not None:
            rows.check_of(checked.sequences)
        around = self._surroundings(checked, output_attentions, global_rows)
        last = self._selecting_place(around, output_hidden_states) if rows is not None else None
        hidden_TD = self.embedding(checked)
        in_one = rows is None and not output_hidden_states
        planned_TD = self._planned(hidden_TD, around) if in_one else None
        hidden_states, attentions = (
            self._call_blocks(hidden_TD, around, rows, last, keep=output_hidden_states)
            if planned_TD is None
            else ([planned_TD], [])
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
            # In a graph the layers have a layout of their own, which ends with it.
            sequences=batch.sequences
            if torch.compiler.is_compiling() and rows is None
            else sequences,
            pooler_output=pooled_BD,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )

    def _planned(self, hidden_TD: Tensor, around: Surroundings) -> Tensor | None:
        """Compute all blocks in one call, where that is known to give the same."""
        if torch.compiler.is_compiling() or self.convolution is not None or not around.is_plain:
            return None
        blocks = cast("list[Block]", list(self.blocks))
        in_order = [blocks[index] for index in self._order]
        return self._planner.run(in_order, hidden_TD, around.sequences)

    def _call_blocks(
        self,
        embedded_TD: Tensor,
        around: Surroundings,
        rows: SelectedRows | None,
        last: int | None,
        *,
        keep: bool,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the last output, or all that are to be kept, and the probabilities asked for.

        The block in place ``last`` computes ``rows`` alone.
        """
        hidden_states, attentions = [embedded_TD], []
        for place, index in enumerate(self._order):
            selected = rows if place == last else None
            hidden_TD, probabilities = self.blocks[index](hidden_states[-1], around, selected)
            if place == 0 and self.convolution is not None:
                hidden_TD = self.convolution(embedded_TD, hidden_TD, around.sequences)
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

    def _selecting_place(self, around: Surroundings, output_hidden_states: bool) -> int | None:
        """Return the place in the order where rows can be left out; None: only at the end."""
        last = len(self._order) - 1
        whole = around.with_probabilities or output_hidden_states or around.global_rows is not None
        convolved_last = self.convolution is not None and last == 0
        return None if whole or convolved_last or last < 0 else last

    def _finish(self, hidden_TD: Tensor) -> Tensor:
        if self.final_norm is not None:
            hidden_TD = self.final_norm(hidden_TD)
        if self.training and self.spec.final_dropout > 0.0:
            hidden_TD = F.dropout(hidden_TD, self.spec.final_dropout)
        return hidden_TD

    def _surroundings(
        self, batch: PackedBatch, with_probabilities: bool, global_rows: SelectedRows | None
    ) -> Surroundings:
        if global_rows is not None and not self._has_global_rows:
            raise UnsupportedFeatureError(
                f"global_rows are for encoders whose blocks have a window and projections for "
                f"them; a {self.spec.model_type} has none"
            )
        positions = None
        if self._turns:
            positions = batch.position_ids
            positions = batch.sequences.positions if positions is None else positions
        return Surroundings(
            sequences=batch.sequences,
            position_ids_T=positions,
            relative_bias_HR=None if self.relative_bias is None else self.relative_bias(),
            global_rows=None if global_rows is None else global_rows.to(batch.device),
            distances=None if self.distance_vectors is None else self.distance_vectors(),
            with_probabilities=with_probabilities,
        )

    @property
    def _turns(self) -> bool:
        return any(block.attention.rotary is not None for block in self.spec.blocks)

    @property
    def _has_global_rows(self) -> bool:
        return any(block.attention.global_projections for block in self.spec.blocks)

    def _checked(self, batch: PackedBatch) -> PackedBatch:
        if not isinstance(batch, PackedBatch):
            raise TypeError(
                f"an encoder takes a PackedBatch, got {type(batch).__name__}; "
                "use Tokenizer.encode_batch(texts).to_packed(device), packing.pack or packing.unpad"
            )
        embedding = self.spec.embedding
        longest = NO_LIMIT if self.spec.max_length is None else self.spec.max_length
        if batch.position_ids is not None and not (embedding.num_positions or self._turns):
            raise UnsupportedFeatureError(
                f"a {self.spec.model_type} knows distances between tokens, no positions; leave out "
                "position_ids"
            )
        limits = Limits(
            vocab_size=embedding.vocab_size,
            num_segments=embedding.num_segments,
            num_positions=embedding.num_positions or longest,
            max_length=longest,
        )
        return batch.checked(limits).to(self.device)
