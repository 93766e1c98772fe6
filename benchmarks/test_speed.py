"""The cases of operations and tokenizers for pytest-benchmark, with its tables and histories.

``pytest benchmarks/test_speed.py --benchmark-enable -k layer_norm``: the engine alone, in this
process, after the case's gate. Beside its peers, which is what ratios are made of, it is timed by
``python -m benchmarks run``; without ``--benchmark-enable`` every case runs once at its smallest
size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks.measuring.case import Options, Work
from benchmarks.registry import all_cases

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from benchmarks.measuring.case import CaseSpec

# Of every other case a call is seconds long, or takes a process of its own.
ELSEWHERE = (
    "cold_start/",
    "drop_in/",
    "embedding/",
    "finetuning/",
    "growth/",
    "latency/",
    "pretraining/",
    "serving/",
)
CASES = {
    name: spec
    for name, spec in all_cases().items()
    if "cpu" in spec.devices and not name.startswith(ELSEWHERE)
}


@pytest.mark.parametrize("spec", [pytest.param(spec, id=name) for name, spec in CASES.items()])
def test_speed(spec: CaseSpec, benchmark: BenchmarkFixture) -> None:
    reason = spec.unavailable()
    if reason is not None:
        pytest.skip(reason)
    options = Options(threads=torch.get_num_threads(), smoke=benchmark.disabled)
    case = spec.make(options)
    if case.fresh and not benchmark.disabled:
        pytest.skip("it is about first calls of new processes, which this one has no more")
    ours = [candidate for candidate in case.candidates if candidate.role == "ours"]
    able = [candidate for candidate in ours if candidate.unavailable is None]
    if not able:
        pytest.skip(str(ours[0].unavailable))
    built = able[0].build()
    work = built if isinstance(built, Work) else Work(call=built, answer=built)
    verdict = case.gate(work.answer())
    assert verdict.passed, verdict.reason
    benchmark.group = spec.name
    benchmark.extra_info.update(amounts=dict(case.amounts), fingerprint=case.fingerprint)
    benchmark(work.call)
