"""Every operation with every option, as a trial: its inputs, plain PyTorch, and the truth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.testing import largest
from encoder_engine.packing import Sequences
from tests.ops.attention.test_rotary import eager as rotary_eager
from tests.ops.attention.trials import ATTENTION, TERMS, attention, probabilities, statistics
from tests.ops.masked_cases import MaskedCase
from tests.ops.masked_cases import eager as masked_eager
from tests.ops.masked_cases import ours as masked_ours
from tests.ops.norm_trials import NORM, ROWS, layer_norm_quantized, norm, scales
from tests.ops.test_pooling import eager_pool
from tests.ops.trial import BOTH, DROPOUTS, SIZES, WIDTHS, Draw, Space, Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ops.compare import Functions


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
    # What is dropped is found out by norms that have both; see below.
    without = () if dropout > 0.0 else draw["without"]
    for name in without:
        del inputs[name]
    ids = [draw.ids(num, limit, seed=6 + place) for place, limit in enumerate(limits)]
    given = ids[2] if kinds == "given" else None

    def call(tables: dict[str, Tensor], by: str, dropout: float) -> Tensor:
        torch.manual_seed(draw.seed)
        return ops.embedding(
            *(ids[0], ids[1] if names[1] in tables else None, given),
            token_weight_VE=tables["token_weight_VE"],
            position_weight_PE=tables.get("position_weight_PE"),
            segment_weight_SE=tables.get("segment_weight_SE"),
            norm_weight_E=tables.get("norm_weight_E"),
            norm_bias_E=tables.get("norm_bias_E"),
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
        # In BERT's order: of half precision another rounds otherwise.
        summed = tables[names[0]][ids[0]]
        if kinds != "none":
            summed = summed + tables[names[2]][ids[2] if kinds == "given" else 0 * ids[2]]
        if names[1] in tables:
            summed = summed + tables[names[1]][ids[1]]
        weight, bias = tables.get("norm_weight_E"), tables.get("norm_bias_E")
        if weight is None:
            return summed
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
        # Few values, but no row of zeros: its norm has no derivative.
        inputs["hidden"] = inputs["hidden"].round() + 0.25

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


def _excess(x: Tensor, quantized: Tensor, scale: Tensor) -> Tensor:
    """Return by how much rows are off by more than half a step."""
    wide = (quantized.double() - 128) * scale.double()[:, None]
    return ((wide - x.double()).abs() - scale.double()[:, None] / 2).clamp(min=0).to(x.dtype)


def _quantize_rows(draw: Draw) -> Trial:
    def run(by: str) -> Functions:
        def function(x: Tensor) -> tuple[Tensor, ...]:
            quantized, scale = ops.quantize_rows(x, implementation=by)
            return scale.to(x.dtype), _excess(x, quantized, scale)

        return function

    def eager(x: Tensor) -> tuple[Tensor, ...]:
        scale = scales(x)
        quantized = (x.float() / scale[:, None]).round() + 128
        return scale.to(x.dtype), _excess(x, quantized, scale)

    inputs = {"x": 3 * draw.rows(draw["rows"], draw["width"], seed=0)}
    # The scale is rounded, its inverse, and their product with an element.
    return Trial(inputs=inputs, run=run, eager=eager, terms=9, differentiable=False)


def _quantized_linear(draw: Draw, *, again: bool = False) -> Trial:
    """``again``: of what is quantized again, the largest value of each row, by byte and scale.

    Not the scales alone: that of a row of zeros is 1, and GELU rounds small values to zero.
    """
    num, width, gelu = draw["rows"], draw["width"], draw["gelu"]
    wide = draw.rows(draw["outer"], width, seed=1).float()
    bias = draw.rows(draw["outer"], seed=2).float() if draw["bias"] else None
    weight = ops.quantize_weight(wide, bias)
    x = draw.ids(num * width, 255, seed=3).add(1).to(torch.uint8).view(num, width)

    def run(by: str) -> Functions:
        def function(scale: Tensor) -> Tensor:
            if again:
                codes, found = ops.requantized_linear(
                    x, scale, weight, gelu=gelu, implementation=by
                )
                return (codes.float() - 128).abs().amax(1) * found
            return ops.quantized_linear(x, scale, weight, gelu=gelu, implementation=by)

        return function

    def linear(scale: Tensor) -> Tensor:
        rows = (x.to(scale.dtype) - 128) * scale[:, None]
        plain = weight.unpack().to(scale.dtype) * weight.scale_N.to(scale.dtype)[:, None]
        return F.linear(rows, plain, None if bias is None else bias.to(scale.dtype))

    def eager(scale: Tensor) -> Tensor:
        result = linear(scale)
        result = result if gelu is None else F.gelu(result, approximate=gelu)
        return result.abs().amax(1) if again else result

    inputs = {"scale": draw.rows(num, seed=4).float().abs() / 64}
    terms = width + draw["outer"] + 1
    return Trial(
        inputs=inputs,
        run=run,
        eager=eager,
        truth=eager,
        terms=terms,
        output_size=0.0 if gelu is None else largest(linear(inputs["scale"].double())),
        differentiable=False,
    )


_FORMS: Space = {"approximate": ("none", "tanh")}
_LINEAR: Space = ROWS | {"outer": (1, 2, 17, 40), "bias": BOTH}
# What may be drawn of each operation, and how it becomes a trial. A "lengths" is drawn as a list.
TRIALS: dict[str, tuple[Space, Callable[[Draw], Trial]]] = {
    "attention": (ATTENTION, attention),
    "attention_probabilities": (TERMS, probabilities),
    "attention_statistics": (TERMS, statistics),
    "bias_gelu": (ROWS | _FORMS | {"bias": BOTH}, partial(_activation, "bias_gelu")),
    "embedding": (
        {
            "rows": SIZES,
            # A sum of few embeddings of few features may vary so little that rounding is all of it.
            "width": WIDTHS[2:],
            "vocab": (1, 5, 40),
            "segments": ("none", "zero", "given"),
            "without": (
                *((), (), ("position_weight_PE",), ("norm_bias_E",)),
                ("norm_weight_E", "norm_bias_E"),
            ),
            "dropout": DROPOUTS,
        },
        _embedding,
    ),
    "geglu": (ROWS | _FORMS | {"bias": BOTH}, partial(_activation, "geglu")),
    "layer_norm": (NORM | {"bias": BOTH}, partial(norm, "layer_norm")),
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
    "layer_norm_quantized": (
        NORM | {"bias": BOTH, "dropout": (0.0,)},
        layer_norm_quantized,
    ),
    "quantize_rows": (ROWS, _quantize_rows),
    "quantized_linear": (_LINEAR | {"gelu": (None, "none", "tanh")}, _quantized_linear),
    "requantized_linear": (
        _LINEAR | {"gelu": (None, "none", "tanh")},
        partial(_quantized_linear, again=True),
    ),
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
    "rms_norm": (NORM, partial(norm, "rms_norm")),
    "rotary": (
        {"rows": SIZES, "half": (1, 2, 8, 12), "heads": (1, 2, 3), "key_heads": (1, 2)},
        _rotary,
    ),
    "swiglu": (ROWS | {"bias": BOTH}, partial(_activation, "swiglu")),
}
