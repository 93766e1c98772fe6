"""Every operation with every option, as a trial: its inputs, plain PyTorch, and the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
from encoder_engine.packing import Sequences
from tests.ops.attention_cases import AttentionCase
from tests.ops.cases import rows as draw_rows
from tests.ops.masked_cases import MaskedCase
from tests.ops.masked_cases import eager as masked_eager
from tests.ops.masked_cases import ours as masked_ours
from tests.ops.test_layer_norm import eager as norm_eager
from tests.ops.test_layer_norm import normalise
from tests.ops.test_pooling import eager_pool
from tests.ops.test_rotary import eager as rotary_eager

if TYPE_CHECKING:
    from tests.ops.compare import Functions

Options = Mapping[str, Any]
# What an option may be, the simplest first.
Space = dict[str, tuple[Any, ...]]
SIZES = (1, 0, 2, 3, 15, 16, 17, 33)
WIDTHS = (1, 2, 7, 16, 17, 40, 130)
BOTH = (False, True)
DROPOUTS = (0.0, 0.0, 0.3)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One call: ``run(by)`` is the operation by an implementation, ``truth`` the same in float64.

    ``terms`` is the length of the longest sum. What is not differentiable is held by its output.
    """

    inputs: dict[str, Tensor]
    run: Callable[[str], Functions]
    eager: Functions
    terms: int
    truth: Functions | None = None
    differentiable: bool = True


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a trial is drawn with."""

    options: Options
    dtype: torch.dtype
    device: str
    seed: int
    by: str

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def rows(self, *shape: int, seed: int) -> Tensor:
        """Draw N(0, 1) in the trial's type."""
        return draw_rows(*shape, seed=self.seed + seed, dtype=self.dtype, device=self.device)

    def ids(self, num: int, limit: int, *, seed: int) -> Tensor:
        """Draw int64 [num] below a limit."""
        generator = torch.Generator().manual_seed(self.seed + seed)
        return torch.randint(0, limit, (num,), generator=generator).to(self.device)


def _norm(norm: str, draw: Draw) -> Trial:
    shape, dropout = (draw["rows"], draw["width"]), draw["dropout"]
    inputs = {"x": 2 * draw.rows(*shape, seed=0) + 1, "weight": draw.rows(shape[1], seed=1)}
    if norm == "layer_norm" and draw["bias"]:
        inputs["bias"] = draw.rows(shape[1], seed=2)
    if draw["residual"]:
        inputs["residual"] = draw.rows(*shape, seed=3)
    num_outputs = 1 + draw["sum"]

    def called(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Any:
        torch.manual_seed(draw.seed)
        return normalise(norm, x, weight, bias, residual, by=draw.by, dropout=dropout)

    kept = torch.ones(shape, dtype=torch.bool, device=draw.device)
    if dropout > 0.0:
        ones = torch.ones_like(inputs["x"])
        kept = called(ones, inputs["weight"], None, 0 * ones)[1] > 0.5

    def dropped(x: Tensor) -> Tensor:
        scaled: Tensor = x * kept / (1.0 - dropout)
        return scaled

    def run(by: str) -> Functions:
        def function(
            x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
        ) -> tuple[Tensor, ...]:
            if by == draw.by:
                outputs = called(x, weight, bias, residual)
            else:
                outputs = normalise(norm, dropped(x), weight, bias, residual, by=by)
            return tuple(outputs[:num_outputs])

        return function

    def eager(x: Tensor, **others: Tensor) -> tuple[Tensor, ...]:
        return norm_eager(norm, dropped(x), **others)[:num_outputs]

    return Trial(inputs=inputs, run=run, eager=eager, terms=sum(shape) + 1)


def _activation(name: str, draw: Draw) -> Trial:
    gated, form = name != "bias_gelu", draw["approximate"] if name != "swiglu" else None
    width = draw["width"] * (2 if gated else 1)
    inputs = {"x": 3 * draw.rows(draw["rows"], width, seed=0)}
    if draw["bias"]:
        inputs["bias"] = draw.rows(width, seed=1)
    more = {} if form is None else {"approximate": form}

    def run(by: str) -> Functions:
        def function(x: Tensor, bias: Tensor | None = None) -> Tensor:
            output: Tensor = getattr(ops, name)(x, bias, implementation=by, **more)
            return output

        return function

    def eager(x: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x if bias is None else x + bias
        x, gate = x.chunk(2, dim=1) if gated else (x, None)
        active = F.silu(x) if form is None else F.gelu(x, approximate=form)
        return active if gate is None else active * gate

    return Trial(inputs=inputs, run=run, eager=eager, terms=draw["rows"] + 1)


def _embedding(draw: Draw) -> Trial:
    num, width, dropout, kinds = draw["rows"], draw["width"], draw["dropout"], draw["segments"]
    names = ("token_weight_VE", "position_weight_PE", "segment_weight_SE")
    limits = (draw["vocab"], 9, 2)
    inputs = {
        name: draw.rows(limit, width, seed=place)
        for place, (name, limit) in enumerate(zip(names, limits, strict=True))
    }
    if kinds == "none":
        del inputs["segment_weight_SE"]
    inputs |= {"norm_weight_E": draw.rows(width, seed=4), "norm_bias_E": draw.rows(width, seed=5)}
    ids = [draw.ids(num, limit, seed=6 + place) for place, limit in enumerate(limits)]
    given = ids[2] if kinds == "given" else None

    def call(tables: dict[str, Tensor], by: str, dropout: float) -> Tensor:
        torch.manual_seed(draw.seed)
        return ops.embedding(
            *(ids[0], ids[1], given),
            token_weight_VE=tables["token_weight_VE"],
            position_weight_PE=tables["position_weight_PE"],
            segment_weight_SE=tables.get("segment_weight_SE"),
            norm_weight_E=tables["norm_weight_E"],
            norm_bias_E=tables["norm_bias_E"],
            epsilon=1e-5,
            dropout=dropout,
            implementation=by,
        )

    kept = torch.ones(num, width, dtype=torch.bool, device=draw.device)
    if dropout > 0.0:
        constant = {"norm_weight_E": inputs["norm_weight_E"] * 0}
        constant["norm_bias_E"] = torch.ones_like(inputs["norm_bias_E"])
        kept = call(inputs | constant, draw.by, dropout) > 0.5

    def scaled(x: Tensor) -> Tensor:
        dropped: Tensor = x * kept / (1.0 - dropout)
        return dropped

    def run(by: str) -> Functions:
        def function(**tables: Tensor) -> Tensor:
            if by == draw.by:
                return call(tables, by, dropout)
            return scaled(call(tables, by, 0.0))

        return function

    def eager(**tables: Tensor) -> Tensor:
        summed = tables[names[0]][ids[0]] + tables[names[1]][ids[1]]
        if kinds != "none":
            summed = summed + tables[names[2]][ids[2] if kinds == "given" else 0 * ids[2]]
        weight, bias = tables["norm_weight_E"], tables["norm_bias_E"]
        return scaled(F.layer_norm(summed, (width,), weight, bias, 1e-5))

    return Trial(inputs=inputs, run=run, eager=eager, terms=num + width)


def _rotary(draw: Draw) -> Trial:
    num, head_dim = draw["rows"], 2 * draw["half"]
    inputs = {"query": draw.rows(num, draw["heads"], head_dim, seed=0)}
    inputs["key"] = draw.rows(num, draw["key_heads"], head_dim, seed=1)
    positions = draw.ids(num, 40, seed=2)
    table = ops.rotary_table(40, head_dim, base=1e4, device=draw.device, dtype=torch.float64)

    def run(by: str) -> Functions:
        def function(query: Tensor, key: Tensor) -> Tensor:
            wide = table.to(torch.promote_types(query.dtype, torch.float32))
            return torch.cat(ops.rotary(query, key, wide, positions, implementation=by), dim=1)

        return function

    return Trial(inputs=inputs, run=run, eager=partial(rotary_eager, positions, table), terms=2)


def _pooling(draw: Draw) -> Trial:
    lengths, mode, normalize = list(draw["lengths"]), draw["mode"], draw["normalize"]
    layout = Sequences.from_lengths(lengths, device=draw.device)
    inputs = {"hidden": draw.rows(sum(lengths), draw["width"], seed=0)}
    if draw["ties"]:
        inputs["hidden"] = inputs["hidden"].round()

    def run(by: str) -> Functions:
        return lambda hidden: ops.pooling(
            hidden, layout, mode=mode, normalize=normalize, implementation=by
        )

    def eager(hidden: Tensor) -> Tensor:
        parts = [eager_pool(part, mode) for part in torch.split(hidden, lengths)]
        pooled = torch.stack(parts) if parts else hidden[:0] * 1
        if not normalize:
            return pooled
        wide = torch.promote_types(pooled.dtype, torch.float32)
        return F.normalize(pooled.to(wide), dim=-1).to(pooled.dtype)

    terms = sum(lengths) + draw["width"]
    return Trial(inputs=inputs, run=run, eager=eager, terms=terms)


def _attention_case(draw: Draw) -> AttentionCase:
    # Without a window every row sees every other; with them no text is causal.
    global_rows = draw["window"] is not None and not draw["causal"]
    return AttentionCase(
        num_heads=draw["key_heads"] * draw["group"],
        head_dim=draw["head_dim"],
        group=draw["group"],
        scale=draw["scale"],
        window=draw["window"],
        causal=draw["causal"],
        slopes=draw["slopes"],
        bias_reach=draw["bias_reach"],
        nth_is_query=draw.options.get("nth_is_query"),
        nth_is_global=draw["nth_is_global"] if global_rows else None,
    )


@dataclass(frozen=True, kw_only=True)
class _DroppingCase(AttentionCase):
    """Attention in plain PyTorch with the weights dropped that an implementation dropped."""

    dropout: float
    kept_THL: Tensor

    def probabilities(
        self, query: Tensor, key: Tensor, start: int, bias: Tensor | None = None
    ) -> Tensor:
        weights = super().probabilities(query, key, start, bias)
        rows = slice(start, start + len(key))
        kept = self.kept_THL[rows, :, : len(key)].transpose(0, 1)
        return weights * kept.to(weights.dtype) / (1.0 - self.dropout)


def _attention(draw: Draw) -> Trial:
    case, lengths, dropout = _attention_case(draw), list(draw["lengths"]), draw["dropout"]
    layout = Sequences.from_lengths(lengths, device=draw.device)
    inputs = case.inputs(sum(lengths), draw.dtype, draw.device)
    products = 1 if case.bias_reach is None else max(sum(lengths), 1)
    terms = max(case.head_dim, *lengths, 1) * products
    exact = draw.dtype in (torch.float32, torch.float64)
    fits = max(lengths, default=0) <= case.head_dim and case.nth_is_query is None
    if dropout == 0.0 or not exact or not fits:
        return Trial(
            inputs=inputs,
            run=lambda by: case.attend(
                layout, torch.float64 if by == "reference" else draw.dtype, by
            ),
            eager=partial(case.eager, layout=layout),
            terms=terms,
        )

    def dropped(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        torch.manual_seed(draw.seed)
        return ops.attention(
            *(query, key, value, layout),
            relative_bias_HR=bias,
            dropout=dropout,
            implementation=draw.by,
            **case.arguments(layout, draw.dtype),
        )

    # One-hot values give the weights themselves back, and with them what was dropped.
    hot = torch.eye(case.head_dim, dtype=draw.dtype, device=draw.device)[layout.positions]
    with torch.no_grad():
        found = dropped(**inputs | {"value": hot[:, None].repeat(1, draw["key_heads"], 1)})
    dropping = _DroppingCase(**vars(case), dropout=dropout, kept_THL=found > 0)
    eager = partial(dropping.eager, layout=layout)
    return Trial(inputs=inputs, run=lambda _: dropped, eager=eager, terms=terms, truth=eager)


def _probabilities(draw: Draw) -> Trial:
    case, lengths = _attention_case(draw), list(draw["lengths"])
    layout = Sequences.from_lengths(lengths, device=draw.device)
    inputs = case.inputs(sum(lengths), draw.dtype, draw.device)
    del inputs["value"]

    def run(by: str) -> Functions:
        def function(query: Tensor, key: Tensor, bias: Tensor | None = None) -> Tensor:
            return ops.attention_probabilities(
                *(query, key, layout),
                relative_bias_HR=bias,
                implementation=by,
                **case.arguments(layout, query.dtype),
            )

        return function

    def eager(query: Tensor, key: Tensor, bias: Tensor | None = None) -> Tensor:
        longest = layout.max_seqlen
        padded = query.new_zeros(len(lengths), case.num_heads, longest, longest)
        for row, (start, stop) in enumerate(pairwise(layout.offsets.tolist())):
            weights = case.probabilities(query[start:stop], key[start:stop], start, bias)
            padded[row, :, : stop - start, : stop - start] = weights
        return padded

    terms = max(case.head_dim, *lengths, 1)
    return Trial(inputs=inputs, run=run, eager=eager, terms=terms, differentiable=False)


def _masked(draw: Draw) -> Trial:
    empty = draw["rows"] == 0
    case = MaskedCase(
        num_tokens=draw["rows"] + 2,
        num_rows=draw["rows"],
        width=draw["width"],
        vocab_size=draw["vocab"],
        dtype=draw.dtype,
        device=draw.device,
        has_bias=draw["bias"],
        label_smoothing=draw["label_smoothing"],
        z_loss=draw["z_loss"],
        ignored_share=draw["ignored_share"],
        # The mean of nothing is NaN, in torch as in ours.
        reduction="sum" if empty and draw["reduction"] == "mean" else draw["reduction"],
        seed=draw.seed,
    )

    def judged(function: Callable[..., Tensor]) -> Functions:
        # A loss in float32 of half-precision logits is as exact as they are.
        return lambda **given: function(**given).to(given["hidden"].dtype)

    return Trial(
        inputs=case.inputs(),
        run=lambda by: judged(partial(masked_ours, case, by, draw["mode"])),
        eager=judged(partial(masked_eager, case)),
        terms=case.width + case.vocab_size + case.num_rows,
    )


def _linear(draw: Draw) -> Trial:
    inputs = {"x": draw.rows(draw["rows"], draw["width"], seed=0)}
    inputs["weight"] = draw.rows(draw["outer"], draw["width"], seed=1)
    if draw["bias"]:
        inputs["bias"] = draw.rows(draw["outer"], seed=2)

    def run(by: str) -> Functions:
        return partial(_call_linear, by)

    terms = draw["width"] + draw["outer"] + draw["rows"] + 1
    return Trial(inputs=inputs, run=run, eager=_eager_linear, terms=terms)


def _call_linear(by: str, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return ops.linear(x, weight, bias, implementation=by)


def _eager_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight, bias)


def _packed_linear(draw: Draw) -> Trial:
    plain = _linear(draw)
    gelu: ops.Approximation | None = draw["gelu"]

    def run(by: str) -> Functions:
        def function(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            packed = ops.pack_weight(weight, bias)
            return ops.packed_linear(x, packed, gelu=gelu, implementation=by)

        return function

    def eager(**tensors: Tensor) -> Tensor:
        output = _eager_linear(**tensors)
        return output if gelu is None else F.gelu(output, approximate=gelu)

    return Trial(
        inputs=plain.inputs,
        run=run,
        eager=eager,
        terms=plain.terms,
        truth=eager,
        differentiable=False,
    )


_ROWS: Space = {"rows": SIZES, "width": WIDTHS}
_NORM: Space = _ROWS | {"residual": BOTH, "sum": BOTH, "dropout": DROPOUTS}
_FORMS: Space = {"approximate": ("none", "tanh")}
_LINEAR: Space = _ROWS | {"outer": (1, 2, 17, 40), "bias": BOTH}
_ATTENTION: Space = {
    "lengths": SIZES,
    "key_heads": (1, 2),
    "group": (1, 2, 3),
    "head_dim": (16, 8, 24, 32),
    "scale": (None, 0.3),
    "window": (None, 0, 1, 9, 40),
    "causal": BOTH,
    "slopes": BOTH,
    "bias_reach": (None, 1, 5, 40),
    "nth_is_global": (None, None, 2, 7),
}
# What may be drawn of each operation, and how it becomes a trial. A "lengths" is drawn as a list.
TRIALS: dict[str, tuple[Space, Callable[[Draw], Trial]]] = {
    "attention": (
        _ATTENTION | {"dropout": DROPOUTS, "nth_is_query": (None, None, 2, 7)},
        _attention,
    ),
    "attention_probabilities": (_ATTENTION, _probabilities),
    "bias_gelu": (_ROWS | _FORMS | {"bias": BOTH}, partial(_activation, "bias_gelu")),
    "embedding": (
        {
            "rows": SIZES,
            # A sum of few embeddings of few features may vary so little that rounding is all of it.
            "width": WIDTHS[2:],
            "vocab": (1, 5, 40),
            "segments": ("none", "zero", "given"),
            "dropout": DROPOUTS,
        },
        _embedding,
    ),
    "geglu": (_ROWS | _FORMS | {"bias": BOTH}, partial(_activation, "geglu")),
    "layer_norm": (_NORM | {"bias": BOTH}, partial(_norm, "layer_norm")),
    "linear": (_LINEAR, _linear),
    "masked_cross_entropy": (
        {
            "rows": SIZES,
            "width": (1, 7, 16, 40),
            "vocab": (1, 5, 40, 130),
            "bias": BOTH,
            "label_smoothing": (0.0, 0.1, 1.0),
            "z_loss": (0.0, 1e-4, 0.1),
            "ignored_share": (0.0, 0.2, 0.9),
            "reduction": ("sum", "mean", "none"),
            "mode": ("stored", "tiled"),
        },
        _masked,
    ),
    "packed_linear": (_LINEAR | {"gelu": (None, "none", "tanh")}, _packed_linear),
    "pooling": (
        {
            "lengths": (*SIZES, 130, 300),
            "width": WIDTHS,
            "mode": ops.POOLING_MODES,
            "normalize": BOTH,
            "ties": BOTH,
        },
        _pooling,
    ),
    "rms_norm": (_NORM, partial(_norm, "rms_norm")),
    "rotary": (
        {"rows": SIZES, "half": (1, 2, 8, 12), "heads": (1, 2, 3), "key_heads": (1, 2)},
        _rotary,
    ),
    "swiglu": (_ROWS | {"bias": BOTH}, partial(_activation, "swiglu")),
}
