"""Packed attention with the forward kernel in Gluon, which calls do not choose, on a Hopper GPU.

Without a window or dropout, on equal lengths, beside the Triton kernels and cuDNN's, dense and
packed. The gradients are the Triton kernels'. Two consumers that take turns are cases of their own:
should they wait for each other for ever, the others are measured all the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from encoder_engine.kernels.attention.config import GLUON_LAUNCHES, GluonLaunch
from encoder_engine.kernels.common.pinned import pin

from benchmarks.cases.ops.attention import make_work as make_any_work
from benchmarks.jobs.op_case import GPU, Shape, Work, fixed_shape, op_specs
from encoder_engine import ops

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.measuring.case import CaseSpec

# Lengths, heads and head size.
SIZES = {
    "": ((512,) * 128, 16, 64),
    "_2k": ((2048,) * 16, 16, 64),
    "_8k": ((8192,), 16, 64),
    "_d128": ((2048,) * 16, 8, 128),
}


def case_specs() -> list[CaseSpec]:
    """Forward and training by 64 and 128 rows a program; forward with and without turns."""
    return [
        spec
        for size, given in SIZES.items()
        for group, modes, turns in (
            ("attention_gluon", ("forward", "training"), False),
            ("attention_turns", ("forward",), True),
        )
        for spec in op_specs(
            "attention",
            partial(make_work, turns=turns),
            group=f"{group}{size}",
            modes=modes,
            lengths=("equal",),
            shape=partial(fixed_shape, *given),
            devices=GPU,
        )
    ]


def make_work(shape: Shape, *, turns: bool) -> Work:
    """Attend within each sequence; ``turns``: by two consumers, with and without them."""
    plain = make_any_work(shape)
    launches = {
        f"Gluon, {rows} rows{', turns' if wanted else ''}": GLUON_LAUNCHES[
            shape.head_dim, rows
        ]._replace(turns=wanted)
        for rows, wanted in (((128, False), (128, True)) if turns else ((64, False), (128, False)))
    }
    assert plain.facts is not None
    by_triton = dict(ops.find_operation("attention").explain(plain.facts))["triton"]
    refusals = {"triton": by_triton} | dict.fromkeys(launches, by_triton or _why_not(shape.device))
    return replace(
        plain,
        ours=partial(_ours, plain, launches),
        refusals=refusals,
        rivals=tuple(rival for rival in plain.rivals if "cudnn" in rival.name),
    )


def _ours(plain: Work, launches: dict[str, GluonLaunch], by: str, **inputs: Tensor) -> Tensor:
    if by not in launches:
        return plain.ours(by, **inputs)
    with pin(attention_forward=launches[by]):
        return plain.ours("triton", **inputs)


def _why_not(device: str) -> str | None:
    if device == "cuda" and torch.cuda.get_device_capability()[0] == 9:
        return None
    return "for an H100 or H200"
