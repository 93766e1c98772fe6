"""Packed attention with the Gluon kernels, which the engine never chooses by itself, on Hopper.

They are measured without window and dropout, on equal lengths, beside the Triton kernels and those
of cuDNN, dense and packed. Consumer warps that take turns, and the gradients in Gluon, are cases of
their own: these kernels might never end, and then the other cases are measured all the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NotRequired, TypedDict

import torch
from encoder_engine.kernels.attention.config import GLUON_LAUNCHES
from encoder_engine.kernels.common.pinned import pin

from benchmarks.cases.ops.attention import make_work as make_any_work
from benchmarks.jobs.op_case import GPU, Shape, Work, fixed_shape, op_specs
from encoder_engine import ops
from encoder_engine.ops.attention import AttentionFacts

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.measuring.case import CaseSpec


class Pins(TypedDict):
    """A variant: the rows that a program of the forward kernel computes, and two switches.

    ``turns``: consumer warps take turns.
    ``gradients``: backward is by Gluon too.
    """

    rows: int
    turns: NotRequired[bool]
    gradients: NotRequired[bool]


# Lengths, heads and head size.
SIZES = {
    "": ((512,) * 128, 16, 64),
    "_2k": ((2048,) * 16, 16, 64),
    "_8k": ((8192,), 16, 64),
    "_d128": ((2048,) * 16, 8, 128),
}


# By the beginning of a group's name: the modes, the sizes, and what is pinned for a candidate.
VARIANTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, Pins]]] = {
    "attention_gluon": (
        ("forward", "training"),
        tuple(SIZES),
        {"Gluon, 64 rows": {"rows": 64}, "Gluon, 128 rows": {"rows": 128}},
    ),
    "attention_turns": (
        ("forward",),
        tuple(SIZES),
        {"Gluon, 128 rows": {"rows": 128}, "Gluon, 128 rows, turns": {"rows": 128, "turns": True}},
    ),
    "attention_gluon_gradients": (
        ("training",),
        ("", "_2k", "_8k"),
        {
            "Gluon, 128 rows": {"rows": 128},
            "Gluon, 128 rows and gradients": {"rows": 128, "gradients": True},
        },
    ),
}


def case_specs() -> list[CaseSpec]:
    """Return the case of each variant, size and mode."""
    return [
        spec
        for group, (modes, sizes, candidates) in VARIANTS.items()
        for size in sizes
        for spec in op_specs(
            "attention",
            partial(make_work, candidates=candidates),
            group=f"{group}{size}",
            modes=modes,
            lengths=("equal",),
            shape=partial(fixed_shape, *SIZES[size]),
            devices=GPU,
        )
    ]


def make_work(shape: Shape, *, candidates: dict[str, Pins]) -> Work:
    """Define the case: attend within each sequence, by Triton and by each Gluon candidate."""
    plain = make_any_work(shape)
    assert isinstance(plain.facts, AttentionFacts)
    # Measured where calls choose cuDNN too.
    facts = replace(plain.facts, equal_length=0)
    by_triton = dict(ops.find_operation("attention").explain(facts))["triton"]
    why_not = by_triton or why_not_hopper(shape.device)
    return replace(
        plain,
        ours=partial(_ours, plain, shape.head_dim, candidates),
        refusals={"triton": by_triton} | dict.fromkeys(candidates, why_not),
        rivals=tuple(rival for rival in plain.rivals if "cudnn" in rival.name),
    )


def _ours(
    plain: Work, head_dim: int, candidates: dict[str, Pins], by: str, **inputs: Tensor
) -> Tensor:
    if by not in candidates:
        return plain.ours(by, **inputs)
    given = candidates[by]
    launch = GLUON_LAUNCHES[head_dim, given["rows"]]._replace(turns=given.get("turns", False))
    # Backward follows what was pinned as the output was computed.
    with pin(attention_forward=launch, attention_gluon_gradients=given.get("gradients", False)):
        return plain.ours("triton", **inputs)


def why_not_hopper(device: str) -> str | None:
    """Return the reason why a device cannot run the kernels in Gluon, or None."""
    if device == "cuda" and torch.cuda.get_device_capability()[0] == 9:
        return None
    return "for an H100 or H200"
