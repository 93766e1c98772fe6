"""Searches launch shapes for the GPU at hand: ``python -m benchmarks.commands.tune KERNEL``.

Kernels are not tuned automatically: they launch with the shapes of their ``config.py``. This
command tries other shapes on an operation's case, checks each by the numeric budget, times those
that pass in turns with the table's shape, and prints the fastest. Better shapes are entered by
hand.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import click
import torch
from encoder_engine.kernels.attention.config import Launch as AttentionLaunch
from encoder_engine.kernels.attention.forward_specialized import MOST_STAGES
from encoder_engine.kernels.common.pinned import pin
from encoder_engine.kernels.masked_projection.config import Launch as ProjectionLaunch

from benchmarks.cases.ops import attention as bench_attention
from benchmarks.cases.ops import masked_projection as bench_masked_projection
from benchmarks.measuring.case import Candidate, Case, Options
from benchmarks.measuring.measure import MIN_ROUNDS, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.measuring.case import Call, CaseSpec
    from benchmarks.measuring.measure import Measurement

TABLE = "the table's"
SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Search:
    """A kernel's case and the shapes to try; ``smallest``: two that any machine can interpret."""

    specs: Callable[[], list[CaseSpec]]
    case: str
    launches: tuple[Any, ...]
    smallest: tuple[Any, ...]


_ATTENTION = tuple(
    AttentionLaunch(*sizes) for sizes in product((32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3, 4))
)
# Read by TMA, and by specialised warps, whose three groups of four follow from num_warps = 4.
_FORWARD = (
    *_ATTENTION,
    *(
        AttentionLaunch(128, keys, 4 if specialized else 8, stages, None, True, specialized)
        for keys, stages, specialized in product((64, 128), (2, 3, 4), (False, True))
        if not specialized or stages <= MOST_STAGES
    ),
    *(AttentionLaunch(128, 64, 8, stages, 128) for stages in (2, 3, 4)),
    *(AttentionLaunch(64, *x, None, True) for x in product((32, 64, 128), (4,), (2, 3))),
)
_SMALL_ATTENTION = (AttentionLaunch(16, 16, 4, 1), AttentionLaunch(32, 16, 4, 1))
_PROJECTION = tuple(
    ProjectionLaunch(*sizes)
    for sizes in product((64, 128), (64, 128, 256), (32, 64), (4, 8), (2, 3, 4))
)
_SMALL_PROJECTION = (ProjectionLaunch(16, 64, 16, 4, 1), ProjectionLaunch(32, 128, 16, 4, 1))
_attention = partial(
    Search, specs=bench_attention.case_specs, launches=_ATTENTION, smallest=_SMALL_ATTENTION
)
_projection = partial(
    Search,
    specs=bench_masked_projection.case_specs,
    launches=_PROJECTION,
    smallest=_SMALL_PROJECTION,
)
SEARCHES = {
    "attention_forward": _attention(case="attention/forward-equal", launches=_FORWARD),
    "attention_query": _attention(case="attention/training-equal"),
    "attention_key": _attention(case="attention/training-equal"),
    "projection_statistics": _projection(case="masked_cross_entropy_tiled/forward"),
    "projection_gradient": _projection(case="masked_cross_entropy_tiled/training"),
}


def make_case(kernel: str, name: str | None, options: Options) -> Case:
    """Make a case with one candidate per launch shape."""
    search = SEARCHES[kernel]
    found = {spec.name: spec for spec in search.specs()}
    case = found[name or search.case].make(options)
    (ours,) = (c for c in case.candidates if c.name == "encoder-engine triton")
    if ours.unavailable is not None and not options.smoke:
        raise click.ClickException(ours.unavailable)
    launches = search.smallest if options.smoke else search.launches
    tried = [_pinned(ours, f"{tuple(launch)}", {kernel: launch}) for launch in launches]
    return Case(
        name=f"{kernel} on {case.name}",
        candidates=(_pinned(ours, TABLE, {}), *tried),
        gate=case.gate,
        fingerprint=case.fingerprint,
        seed=case.seed,
        device=case.device,
        rounds=MIN_ROUNDS,
    )


def _pinned(ours: Candidate, name: str, launches: dict[str, Any]) -> Candidate:
    def build() -> Call:
        call = cast("Call", ours.build())

        def launched() -> Any:
            with pin(**launches) if launches else nullcontext():
                return call()

        return launched

    return Candidate(name=name, role="ours", build=build)


def summary(found: Sequence[Measurement]) -> list[str]:
    """Compare the fastest shapes with the table's; count those that failed."""
    measured = [m for m in found if m.status == "measured"]
    (table,) = (m for m in measured if m.candidate == TABLE)
    best = sorted(measured, key=lambda m: m.wall_ms.p50)[:SHOWN]
    lines = [
        f"{m.wall_ms.p50:9.4g} ms  {table.wall_ms.p50 / m.wall_ms.p50:5.2f} x  {m.candidate}"
        for m in (*best, table)
    ]
    return [*lines, f"{len(found) - len(measured)} of {len(found)} shapes do not launch or fail"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kernel", type=click.Choice(sorted(SEARCHES)))
@click.option("--case", "name", help="Another case, such as attention_d128/forward.")
@click.option("--smoke", is_flag=True, help="Tiny sizes and two shapes, interpreted without a GPU.")
def main(kernel: str, name: str | None, *, smoke: bool) -> None:
    """Try launch shapes of KERNEL and print the fastest beside the table's."""
    if not smoke and not torch.cuda.is_available():
        raise click.ClickException("no CUDA device: shapes are timed on the GPU they are for")
    options = Options(device="cpu" if smoke else "cuda", smoke=smoke)
    case = make_case(kernel, name, options)
    found = measure(case, threads=1, rounds=1 if smoke else None, smoke=smoke)
    for line in (case.name, *summary(found)):
        click.echo(line)


if __name__ == "__main__":
    sys.exit(main())
