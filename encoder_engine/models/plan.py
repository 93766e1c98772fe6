"""The plan of an encoder's blocks: all of them as one native call, with the same bits.

How it works: a post-norm block is seven operations (four GEMMs, attention and two norms), and a
call from Python for each is a fixed cost that short texts pay in full. Where the native
implementation would be chosen for every operation, the blocks are listed once as steps over shared
row buffers (one for each name and width, reused by all blocks), and a call hands the list to C++. A
plan needs packed or int8 dense layers, and blocks without disentangled attention; batches with
global rows are not planned. Each call first makes sure that the plan still
holds: the same module, parameter and weight objects at the same addresses, no hooks, no replaced
``forward``, no training mode and no gradients. Those checks run as ``map`` over lists, without
Python bytecode for each of about a hundred members, in microseconds. Where a check fails, the
blocks are called one by one.
"""

from __future__ import annotations

import operator
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.models.attention import SelfAttention
from encoder_engine.models.layers import GELU, Block, FeedForward
from encoder_engine.models.linear import PackedLinear, QuantizedLinear
from encoder_engine.models.norm import Norm
from encoder_engine.ops.registry import requested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.ops.native.plan import NativePlan, QuantizedRows
    from encoder_engine.packing import Sequences

__all__ = ["Planner"]


class Planner:
    """Plans an encoder's blocks at the first call, and again after a layer was replaced.

    A planner belongs to one encoder; copies and pickles start without a plan.
    """

    def __init__(self) -> None:
        self._made: _Made | None = None

    def __getstate__(self) -> dict[str, None]:
        return {"_made": None}

    def run(
        self,
        blocks: Sequence[Block],
        hidden_TD: Tensor,
        sequences: Sequences,
        position_ids_T: Tensor | None,
        relative_bias_HR: Tensor | None = None,
    ) -> Tensor | None:
        """Return the blocks' output, [T, D]; None where they must be called one by one.

        ``position_ids_T``: within the table of the rotary embeddings; None where no block has any.
        ``relative_bias_HR``: added to all blocks' scores, or None.
        """
        if hidden_TD.device.type != "cpu" or hidden_TD.requires_grad or requested():
            return None
        if torch.is_autocast_enabled("cpu"):
            return None
        if relative_bias_HR is not None and relative_bias_HR.requires_grad:
            return None
        reach = None if relative_bias_HR is None else relative_bias_HR.shape[1] // 2
        made = self._made
        if made is None or not made.fits(blocks, hidden_TD, reach):
            # Assigned only when complete: other threads may read it.
            self._made = made = _Made(blocks, hidden_TD, reach)
        if made.plan is None or made.layers.need_modules():
            return None
        return made.plan.run(hidden_TD, sequences, position_ids_T, relative_bias_HR)


class _Made:
    """A plan, or None where the blocks cannot be planned, with the layers it was made of."""

    def __init__(self, blocks: Sequence[Block], hidden_TD: Tensor, bias_reach: int | None) -> None:
        self.layers = _Layers(blocks)
        self._kind = (hidden_TD.dtype, hidden_TD.shape[1], bias_reach)
        self.plan = _plan(blocks, hidden_TD, bias_reach)

    def fits(self, blocks: Sequence[Block], hidden_TD: Tensor, bias_reach: int | None) -> bool:
        """Return whether the plan holds for these blocks, rows of this kind and this reach."""
        kind = (hidden_TD.dtype, hidden_TD.shape[1], bias_reach)
        return kind == self._kind and self.layers.unchanged(blocks)


class _Layers:
    """The modules, parameters and weights of blocks, to detect any change in microseconds."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)
        modules = [module for block in dict.fromkeys(blocks) for module in block.modules()]
        members: list[tuple[dict[str, Any], str, Any]] = [
            (holder, name, member)
            for module in modules
            for holder in (module._modules, module._parameters)
            for name, member in holder.items()
        ]
        weights = [vars(m) for m in modules if isinstance(m, PackedLinear | QuantizedLinear)]
        members += [
            (own, name, own[name])
            for own in weights
            for name in ("packed", "quantized")
            if name in own
        ]
        self._holders = [holder for holder, _, _ in members]
        self._names = [name for _, name, _ in members]
        self._members = [member for _, _, member in members]
        self._parameters = [p for m in modules for p in m._parameters.values() if p is not None]
        self._addresses = [p.data_ptr() for p in self._parameters]
        self._trained = [m for m in modules if isinstance(m, Block | SelfAttention | FeedForward)]
        self._own = [vars(module) for module in modules]
        everywhere = nn.modules.module
        self._hooks: list[dict[Any, Any]] = [
            everywhere._global_forward_hooks,
            everywhere._global_forward_pre_hooks,
            *(hooks for m in modules for hooks in (m._forward_hooks, m._forward_pre_hooks)),
        ]

    # `map` instead of a Python expression for each of a hundred members: short texts wait for this.
    def unchanged(self, blocks: Sequence[Block]) -> bool:
        """Return whether all members are the same objects, with parameters at the same address."""
        found = map(dict.get, self._holders, self._names)
        return (
            len(blocks) == len(self._blocks)
            and all(map(operator.is_, blocks, self._blocks))
            and all(map(operator.is_, found, self._members))
            and list(map(Tensor.data_ptr, self._parameters)) == self._addresses
        )

    def need_modules(self) -> bool:
        """Return whether hooks, a replaced ``forward``, training or gradients rule out a plan."""
        return (
            any(self._hooks)
            or any(map(operator.attrgetter("training"), self._trained))
            or any(map(operator.contains, self._own, repeat("forward")))
            or (torch.is_grad_enabled() and any(p.requires_grad for p in self._parameters))
        )


def _plan(blocks: Sequence[Block], hidden_TD: Tensor, bias_reach: int | None) -> NativePlan | None:
    """Return the plan of the blocks; None where an operation would not run natively."""
    dtype = hidden_TD.dtype
    if not blocks or not all(_plannable(block, hidden_TD) for block in blocks):
        return None
    from encoder_engine.ops.native import plan as native

    steps = native.NativePlan(dtype)
    builder = _Builder(steps, native.INPUT, bias_reach)
    for block in blocks[:-1]:
        builder.add_block(block, None)
    builder.add_block(blocks[-1], native.OUTPUT)
    return steps


def _plannable(block: Block, hidden_TD: Tensor) -> bool:
    # A subclass may compute something else.
    parts = (block, block.attention, block.feed_forward) if type(block) is Block else (block,)
    if [type(part) for part in parts] != [Block, SelfAttention, FeedForward]:
        return False
    feed_forward = block.feed_forward
    raising = feed_forward.halves if feed_forward.spec.gated else feed_forward.up
    layers = (block.attention.qkv, block.attention.output, raising, feed_forward.down)
    norms: list[Norm | None] = [block.feed_forward_norm]
    if block.spec.attention_norm:
        norms.append(block.attention_norm)
    return (
        # Global rows are an input of a call, which is not planned then.
        not block.spec.attention.disentangled
        and all(_is_native(layer, hidden_TD) for layer in layers)
        and all(_fits(norm, hidden_TD) for norm in norms)
        and _computes(block, hidden_TD)
    )


def _is_native(layer: nn.Module | None, hidden_TD: Tensor) -> bool:
    if type(layer) is PackedLinear:
        return (layer.packed.layout, layer.packed.dtype) == ("native", hidden_TD.dtype)
    return type(layer) is QuantizedLinear and layer.quantized.layout == "native"


def _fits(norm: Norm | None, hidden_TD: Tensor) -> bool:
    if type(norm) is not Norm:
        return False
    vectors = [v for v in (norm.weight, norm.bias) if v is not None]
    return all(v.dtype == hidden_TD.dtype and v.is_contiguous() for v in vectors)


def _computes(block: Block, hidden_TD: Tensor) -> bool:
    """Return whether the native implementation is the automatic choice for every operation."""
    attention, norm = block.spec.attention, block.spec.norm
    feed_forward = block.spec.feed_forward
    terms = {"window": attention.window, "alibi_slopes": attention.alibi_slopes}
    common: dict[str, Any] = {"device": hidden_TD.device.type, "dtype": str(hidden_TD.dtype)}
    explanations = [
        ops.explain(
            "attention",
            **common,
            head_dim=attention.head_dim,
            terms=tuple(name for name, value in terms.items() if value is not None),
        ),
        ops.explain("layer_norm" if norm.centred else "rms_norm", **common),
        ops.explain("quantize_rows", **common),
    ]
    if attention.rotary is not None:
        explanations.append(ops.explain("rotary", **common))
    if feed_forward.gated:
        gate = "geglu" if feed_forward.activation in GELU else "swiglu"
        explanations.append(ops.explain(gate, **common))
    return all(
        next((name for name, refusal in one if refusal is None), None) == "native"
        for one in explanations
    )


class _Builder:
    """Adds blocks to a plan; one buffer of each name and width is reused by all blocks."""

    def __init__(self, steps: NativePlan, source: int, bias_reach: int | None) -> None:
        self._steps = steps
        self._bias_reach = bias_reach
        self._hidden = source
        self._rows: dict[tuple[str, int], int] = {}
        self._bytes: dict[tuple[str, int], QuantizedRows] = {}

    def add_block(self, block: Block, target: int | None) -> None:
        """Add a block that writes to ``target``; None: to the buffer that the next block reads."""
        width = block.feed_forward_norm.weight.shape[0]
        target = self._buffer("hidden", width) if target is None else target
        between, projected = self._buffer("between", width), self._buffer("projected", width)
        feed_forward = block.feed_forward
        if block.spec.norm_first:
            normal = self._hidden
            if block.attention_norm is not None:
                normal = between
                self._norm(block.attention_norm, self._hidden, normal, residual=None)
            self._attention(block.attention, normal, projected)
            total = self._buffer("total", width)
            self._norm(
                *(block.feed_forward_norm, projected, between), residual=self._hidden, total=total
            )
            self._feed_forward(feed_forward, between, projected, None)
            self._steps.add(total, projected, target, width)
        else:
            assert block.attention_norm is not None
            self._attention(block.attention, self._hidden, projected)
            quantized = self._norm(
                *(block.attention_norm, projected, between),
                residual=self._hidden,
                with_bytes=feed_forward.reads_bytes and block.spec.norm.centred,
            )
            self._feed_forward(feed_forward, between, projected, quantized)
            # A block passes no bytes on: they would be of numbers that are not rounded yet.
            self._norm(block.feed_forward_norm, projected, target, residual=between)
        self._hidden = target

    def _attention(self, attention: SelfAttention, source: int, target: int) -> None:
        spec = attention.spec
        width = spec.num_heads * spec.head_dim
        heads, mixed = self._buffer("heads", 3 * width), self._buffer("mixed", width)
        self._dense(attention.qkv, source, heads)
        if attention.rotary is not None:
            # Query and key, not value.
            table_PD = attention.rotary().contiguous()
            self._steps.rotate(table_PD, heads, num_heads=2 * spec.num_heads, row_width=3 * width)
        slopes = attention.slopes
        self._steps.attention(
            *(heads, mixed),
            num_heads=spec.num_heads,
            head_dim=spec.head_dim,
            scale=spec.head_dim**-0.5 if spec.scale is None else spec.scale,
            window=spec.window,
            alibi_slopes_H=None if slopes is None else slopes(),
            bias_reach=self._bias_reach,
        )
        self._dense(attention.output, mixed, target)

    def _feed_forward(
        self, layer: FeedForward, source: int, target: int, quantized: QuantizedRows | None
    ) -> None:
        gelu, width = GELU.get(layer.spec.activation), layer.spec.width
        # The extension has the spec's names.
        function = layer.spec.activation
        if layer.reads_bytes:
            assert isinstance(layer.up, QuantizedLinear)
            assert isinstance(layer.down, QuantizedLinear)
            if quantized is None:
                depth = layer.up.quantized.shape[1]
                quantized = self._quantized_buffer("between", depth)
                self._steps.quantize(source, quantized, depth)
            bytes_ = self._quantized_buffer("raised", width)
            self._steps.quantized_linear(layer.up.quantized, quantized, bytes_, function=function)
            self._steps.quantized_linear(layer.down.quantized, bytes_, target)
            return
        raised = self._buffer("raised", width)
        if layer.spec.gated:
            halves = self._buffer("halves", 2 * width)
            self._dense(layer.halves, source, halves)
            self._steps.activate(halves, raised, width, gelu=gelu)
        else:
            self._dense(layer.up, source, raised, function=function)
        self._dense(layer.down, raised, target)

    def _dense(
        self,
        layer: nn.Module | None,
        source: int,
        target: int,
        *,
        function: str = "none",
    ) -> None:
        if isinstance(layer, PackedLinear):
            self._steps.packed_linear(layer.packed, source, target, function=function)
            return
        assert isinstance(layer, QuantizedLinear)
        depth = layer.quantized.shape[1]
        quantized = self._quantized_buffer("input", depth)
        self._steps.quantize(source, quantized, depth)
        self._steps.quantized_linear(layer.quantized, quantized, target, function=function)

    def _norm(
        self,
        norm: Norm,
        source: int,
        target: int,
        *,
        residual: int | None,
        total: int | None = None,
        with_bytes: bool = False,
    ) -> QuantizedRows | None:
        """Add ``norm(source + residual)``, and the sum to ``total``; return its bytes or None."""
        width = norm.weight.shape[0]
        quantized = self._quantized_buffer("between", width) if with_bytes else None
        self._steps.normalize(
            *(norm.weight, norm.bias, source, target),
            residual=residual,
            epsilon=norm.spec.epsilon,
            centred=norm.spec.centred,
            total=total,
            quantized=quantized,
        )
        return quantized

    def _buffer(self, name: str, width: int) -> int:
        if (name, width) not in self._rows:
            self._rows[name, width] = self._steps.rows(width)
        return self._rows[name, width]

    def _quantized_buffer(self, name: str, width: int) -> QuantizedRows:
        if (name, width) not in self._bytes:
            self._bytes[name, width] = self._steps.quantized_rows(width)
        return self._bytes[name, width]
