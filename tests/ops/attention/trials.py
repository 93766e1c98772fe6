"""Attention with every option, as a trial."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.packing import Sequences
from tests.ops.attention.cases import AttentionCase
from tests.ops.attention.weight_statistics import joined, statistics_of
from tests.ops.trial import BOTH, DROPOUTS, SIZES, Draw, Space, Trial

if TYPE_CHECKING:
    from tests.ops.compare import Functions

TERMS: Space = {
    "lengths": SIZES,
    "key_heads": (1, 2),
    "group": (1, 2, 3),
    "head_dim": (16, 8, 24, 32),
    "scale": (None, 0.3),
    "window": (None, 0, 1, 9, 40),
    "causal": BOTH,
    "slopes": BOTH,
    "bias_reach": (None, 1, 5, 40),
    "reach_of_vectors": (None, None, None, 2, 9),
    "nth_is_global": (None, None, 2, 7),
}
ATTENTION: Space = TERMS | {"dropout": DROPOUTS, "nth_is_query": (None, None, 2, 7)}


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
        reach_of_vectors=draw["reach_of_vectors"],
        nth_is_query=draw.options.get("nth_is_query"),
        nth_is_global=draw["nth_is_global"] if global_rows else None,
    )


@dataclass(frozen=True, kw_only=True)
class _DroppingCase(AttentionCase):
    """Attention in plain PyTorch with the weights dropped that an implementation dropped."""

    dropout: float
    kept_THL: Tensor

    def probabilities(
        self,
        query: Tensor,
        key: Tensor,
        start: int,
        bias: Tensor | None = None,
        to_query: Tensor | None = None,
        to_key: Tensor | None = None,
        *,
        num_unattended: int = 0,
    ) -> Tensor:
        weights = super().probabilities(
            query, key, start, bias, to_query, to_key, num_unattended=num_unattended
        )
        rows = slice(start, start + len(key))
        kept = self.kept_THL[rows, :, : len(key)].transpose(0, 1)
        return weights * kept.to(weights.dtype) / (1.0 - self.dropout)


def attention(draw: Draw) -> Trial:
    case, lengths, dropout = _attention_case(draw), list(draw["lengths"]), draw["dropout"]
    layout = Sequences.from_lengths(lengths, device=draw.device)
    inputs = case.inputs(sum(lengths), draw.dtype, draw.device)
    learned = case.bias_reach is not None or case.reach_of_vectors is not None
    products = max(sum(lengths), 1) if learned else 1
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

    def dropped(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None = None,
        to_query: Tensor | None = None,
        to_key: Tensor | None = None,
    ) -> Tensor:
        torch.manual_seed(draw.seed)
        return ops.attention(
            *(query, key, value, layout),
            relative_bias_HR=bias,
            disentangled=case.disentangled(to_query, to_key),
            dropout=dropout,
            implementation=draw.by,
            **case.arguments(layout, draw.dtype),
        )

    # One-hot values give the weights themselves back, and with them what was dropped.
    hot = torch.eye(case.head_dim, dtype=draw.dtype, device=draw.device)[layout.positions]
    found = dropped(**inputs | {"value": hot[:, None].repeat(1, draw["key_heads"], 1)}).detach()
    dropping = _DroppingCase(**vars(case), dropout=dropout, kept_THL=found > 0)
    eager = partial(dropping.eager, layout=layout)
    return Trial(inputs=inputs, run=lambda _: dropped, eager=eager, terms=terms, truth=eager)


def probabilities(draw: Draw) -> Trial:
    case, lengths = _attention_case(draw), list(draw["lengths"])
    layout = Sequences.from_lengths(lengths, device=draw.device)
    inputs = case.inputs(sum(lengths), draw.dtype, draw.device)
    del inputs["value"]

    def run(by: str) -> Functions:
        def function(
            query: Tensor,
            key: Tensor,
            bias: Tensor | None = None,
            to_query: Tensor | None = None,
            to_key: Tensor | None = None,
        ) -> Tensor:
            return ops.attention_probabilities(
                *(query, key, layout),
                relative_bias_HR=bias,
                disentangled=case.disentangled(to_query, to_key),
                implementation=by,
                **case.arguments(layout, query.dtype),
            )

        return function

    def eager(
        query: Tensor,
        key: Tensor,
        bias: Tensor | None = None,
        to_query: Tensor | None = None,
        to_key: Tensor | None = None,
    ) -> Tensor:
        longest = layout.max_seqlen
        padded = query.new_zeros(len(lengths), case.num_heads, longest, longest)
        for row, (start, stop) in enumerate(pairwise(layout.offsets.tolist())):
            here = (query[start:stop], key[start:stop], start)
            weights = case.probabilities(*here, bias, to_query, to_key)
            padded[row, :, : stop - start, : stop - start] = weights
        return padded

    terms = max(case.head_dim, *lengths, 1)
    return Trial(inputs=inputs, run=run, eager=eager, terms=terms, differentiable=False)


def statistics(draw: Draw) -> Trial:
    """Return the output, and all statistics but the offset, which jumps between equal weights."""
    base, case, lengths = probabilities(draw), _attention_case(draw), list(draw["lengths"])
    layout = Sequences.from_lengths(lengths, device=draw.device)
    marks = (torch.arange(sum(lengths)) % 3 == 0)[:, None].to(draw.device)

    def run(by: str) -> Functions:
        def function(
            query: Tensor,
            key: Tensor,
            value: Tensor,
            bias: Tensor | None = None,
            to_query: Tensor | None = None,
            to_key: Tensor | None = None,
        ) -> tuple[Tensor, ...]:
            output, found = ops.attention_statistics(
                *(query, key, value, layout, marks),
                relative_bias_HR=bias,
                disentangled=case.disentangled(to_query, to_key),
                implementation=by,
                **case.arguments(layout, query.dtype),
            )
            return output, joined(found).to(query.dtype)

        return function

    def eager(query: Tensor, key: Tensor, value: Tensor, **learned: Tensor) -> tuple[Tensor, ...]:
        padded = base.eager(query, key, **learned)
        assert isinstance(padded, Tensor)
        rows = [torch.zeros(0, case.num_heads, 7).to(padded)]
        for row, (start, stop) in enumerate(pairwise(layout.offsets.tolist())):
            weights = padded[row, :, : stop - start, : stop - start].transpose(0, 1)
            if start < stop:
                rows.append(statistics_of(weights, marks[start:stop]))
        return case.eager(query, key, value, **learned, layout=layout), torch.cat(rows)

    longest = max([*lengths, 1])
    # Distances are the largest terms, as long as the sequence.
    return Trial(
        inputs=case.inputs(sum(lengths), draw.dtype, draw.device),
        run=run,
        eager=eager,
        terms=base.terms,
        output_size=float(longest),
        differentiable=False,
    )
