"""The rehearsal's clock: side by side, limits, and what is measured by which minute."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.commands import gpu_rehearsal
from benchmarks.commands.gpu import Phase, Step, plan


def steps(*names: str, seconds: float = 60.0) -> list[Step]:
    return [Step(name=name, command=[], seconds=seconds) for name in names]


def test_phases_follow_each_other_and_steps_run_side_by_side() -> None:
    phases = [
        Phase(name="tests", steps=steps(*"abc"), jobs=2),
        Phase(name="cases", steps=steps("d")),
    ]
    found = list(gpu_rehearsal.charge(phases, lambda step: {"a": 30.0}.get(step.name, 10.0)))
    assert [(c.step.name, c.begin, c.end) for c in found] == [
        ("a", 0, 30),
        ("b", 0, 10),
        ("c", 10, 20),
        ("d", 30, 40),
    ]


def test_a_step_is_stopped_at_its_limit_and_none_starts_that_cannot_end() -> None:
    phases = [Phase(name="cases", steps=steps("slow", "next", "late", seconds=20))]
    found = list(gpu_rehearsal.charge(phases, lambda _: 100.0, ends=50.0))
    assert [(c.step.name, c.end, c.ended) for c in found] == [
        ("slow", 20, False),
        ("next", 40, False),
    ]


def test_it_says_what_is_measured_by_which_minute() -> None:
    phases = [
        Phase(name="tests", steps=steps("a test", seconds=200)),
        Phase(
            name="cases",
            steps=[
                replace(step, cases=(f"{step.name} first", f"{step.name} second"))
                for step in steps(*(f"case {n}" for n in range(15)))
            ],
        ),
    ]
    told = gpu_rehearsal.report(phases, {"a test": 100})
    assert "tests: 0 to 73 s, 1 of 1 steps" in told
    # 29 s for two cases after 73 s of tests.
    assert "by minute 2: 1 steps of tests, 2 cases: case 0 first, case 0 second" in told
    assert "by minute 5: 1 steps of tests, 14 cases" in told


def test_every_test_has_a_command_that_runs_without_a_gpu() -> None:
    checks, tests, *_ = plan([], cores=16, folder=Path("results"))
    for step in (*checks.steps, *tests.steps):
        command = gpu_rehearsal.here(step)
        assert command[:4] == [sys.executable, "-m", "tests.kernels.compile_only", "--count"]
        assert "gpu" not in command
