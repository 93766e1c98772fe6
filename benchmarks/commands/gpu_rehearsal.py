"""Rehearses the GPU run without a GPU: ``python -m benchmarks.commands.gpu_rehearsal``.

Every check and test of the plan runs here with a Triton driver that counts the distinct kernels
and launches nothing (``tests/kernels/compile_only.py``), which also shows a step whose command is
wrong. A clock then charges each step its estimated time on a machine with a GPU, and prints what is
done and measured by minutes 2, 5 and 9. The counts are kept in ``build/gpu-kernels.json``;
``--again`` counts anew.
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.commands.gpu import (
    ALL_SECONDS,
    APART,
    LEAST_SECONDS,
    ROOT,
    Phase,
    Step,
    plan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

COUNTS = ROOT / "build" / "gpu-kernels.json"
COUNT_SECONDS = 300
# Of a core of an NVIDIA H200's machine: Python, torch and the device's context; compiling a kernel;
# of a case the rounds of its candidates, and their references.
START_SECONDS, KERNEL_SECONDS, MEASURE_SECONDS = 13.0, 0.6, 8.0
GPU_CORES = 16
MINUTES = (2, 5, 9)


@dataclass(frozen=True, kw_only=True)
class Charged:
    """A step by the clock of estimates, in seconds since the start; ``ended``: within its limit."""

    phase: str
    step: Step
    begin: float
    end: float
    ended: bool


def here(step: Step) -> list[str]:
    """Return the command of a check or a test as it can run without a GPU, counting kernels."""
    _, _, module, *arguments = step.command
    if module == "pytest":
        place = arguments.index("-m")
        arguments = [*arguments[:place], *arguments[place + 2 :]]
    driver = [sys.executable, "-m", "tests.kernels.compile_only", "--count"]
    return [*driver, module, *arguments]


def count_kernels(steps: Sequence[Step]) -> dict[str, int]:
    """Count the distinct kernels of each step; what a step found wrong is printed."""

    def count(step: Step) -> int:
        try:
            ran = subprocess.run(
                here(step),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=COUNT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            print(f"{step.name}: not counted within {COUNT_SECONDS} s", flush=True)
            return 0
        last = ran.stdout.splitlines()[-1:] or [ran.stderr[-200:]]
        if ran.returncode or " kernels, " not in last[0]:
            print(f"{step.name}: {' '.join(ran.stdout.splitlines()[-4:])}", flush=True)
        words = last[0].split()
        return int(words[0]) if words and words[0].isdigit() else 0

    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip([step.name for step in steps], pool.map(count, steps), strict=True))


def estimate(step: Step, num_kernels: int) -> float:
    """Return the seconds of a step on the GPU machine."""
    return START_SECONDS + KERNEL_SECONDS * num_kernels + MEASURE_SECONDS * len(step.cases)


def charge(
    phases: Sequence[Phase], seconds_of: Callable[[Step], float], *, ends: float = ALL_SECONDS
) -> Iterator[Charged]:
    """Run the plan by a clock; steps that would not start are left out."""
    now = 0.0
    for phase in phases:
        free = [now] * phase.jobs
        for step in phase.steps:
            begin = heapq.heappop(free)
            limit = min(step.seconds, ends - begin)
            if ends - begin < LEAST_SECONDS:
                heapq.heappush(free, begin)
                continue
            wanted = seconds_of(step)
            end = begin + min(wanted, limit)
            heapq.heappush(free, end)
            yield Charged(phase=phase.name, step=step, begin=begin, end=end, ended=wanted <= limit)
        now = max(free)


def report(phases: Sequence[Phase], counts: Mapping[str, int]) -> str:
    """Say when each phase ends, what is stopped, and what is measured by which minute."""
    charged = list(charge(phases, lambda step: estimate(step, counts.get(step.name, 0))))
    lines = []
    for phase in phases:
        own = [c for c in charged if c.phase == phase.name]
        if own:
            begin, end = min(c.begin for c in own), max(c.end for c in own)
            lines.append(
                f"{phase.name}: {begin:.0f} to {end:.0f} s, {len(own)} of {len(phase.steps)} steps"
            )
    lines += [f"stopped: {c.step.name}" for c in charged if not c.ended]
    cases = [c for c in charged if c.phase == "cases" and c.ended]
    for minute in MINUTES:
        measured = [name for c in cases if c.end <= 60 * minute for name in c.step.cases]
        num_tests = sum(c.end <= 60 * minute for c in charged if c.phase != "cases" and c.ended)
        names = f": {', '.join(measured)}" if measured else ""
        lines.append(
            f"by minute {minute}: {num_tests} steps of tests, {len(measured)} cases{names}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count where nothing was counted before, and print the clock's account."""
    from benchmarks.registry import choose_cases

    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.commands.gpu_rehearsal"
    )
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args(arguments)
    cases = [spec.name for spec in choose_cases([], "cuda") if not spec.name.startswith(APART)]
    phases = plan(cases, cores=GPU_CORES, folder=Path("results"))
    counts: dict[str, int] = {}
    if COUNTS.is_file() and not given.again:
        counts = json.loads(COUNTS.read_text("utf-8"))
    new = [step for phase in phases[:2] for step in phase.steps if step.name not in counts]
    if new:
        COUNTS.parent.mkdir(exist_ok=True)
        counts |= count_kernels(new)
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n", "utf-8")
    print(report(phases, counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
