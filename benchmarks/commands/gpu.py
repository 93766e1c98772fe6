"""Tests and measures the engine on an NVIDIA GPU: ``python -m benchmarks.commands.gpu``.

Takes ten minutes at most, from the root of a checkout whose extension is built (``python -m pip
install --no-deps -e .``); nothing is installed, fetched or built here. The riskiest kernels are
first compared with float64. Then the tests marked ``gpu`` run side by side, then the cases, one at
a time and the most important first, several in a process: to start one takes longer than a case.
Growth is not measured here: see ``python -m benchmarks run growth``. Exits with 1 where there is no
CUDA device or no extension, or where anything failed.

How it works: every step is a process with a time limit, so that neither a hang nor an illegal
access, after which a process can use the GPU no more, costs another step its result. Cases that
such an end left unmeasured run again, each in a process of its own; one whose results were wrong
has failed. A case's results are appended to the output folder as soon as it ends, and what a step
prints goes to a file of its own below ``logs``. The plan is a value (:func:`plan`):
``benchmarks.commands.gpu_rehearsal`` runs it by a clock of estimates.

The environment: ``OUT`` names the output folder (default: benchmarks/results). Triton's own
``TRITON_CACHE_DIR`` names a folder of kernels compiled before, and ``TRITON_PTXAS_PATH`` another
assembler than Triton's; both reach every step.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.records import results as records
from benchmarks.records.runs import default

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.records.results import Result

ROOT = Path(__file__).resolve().parents[2]
# The whole ends within ten minutes, whatever hangs.
ALL_SECONDS = 570
# Less is too short for a process to start, compile and measure.
LEAST_SECONDS = 15
CHECK_SECONDS, TEST_SECONDS, CASE_SECONDS = 60, 150, 60
# On an NVIDIA H200 a process takes 13 s until its first case, and a case 8 s.
CASES_PER_STEP, NEXT_CASE_SECONDS = 8, 20
# (head size, dropout) of attention's gradients, the kernels of most shapes and hazards.
CHECKED_HEADS = tuple((size, dropout) for size in (32, 64, 128) for dropout in (0.0, 0.1))
# Files whose kernels take a process longer than all the others' to compile, and into how many.
PARTS = {
    "test_attention.py": 10,
    "test_gated_activation.py": 3,
    "test_layer_norm.py": 6,
    "test_masked_projection.py": 20,
    "test_pooling.py": 2,
}
NUM_GENERATED, GENERATED_PARTS, NUM_SANITIZED = 400, 16, 12
# Measured before all others.
FIRST = (
    "attention/forward-equal",
    "attention_2k/forward-equal",
    "attention_d128/forward-equal",
    "attention_2k/training-equal",
    "attention_dropout/training-equal",
    "layer_norm/training",
    "encoder/equal-512",
    "encoder_short/1-text",
    "embedding_gpu/text",
    "embedding_gpu/passages",
)
# What takes minutes by itself, and is asked for by itself.
APART = "growth/"
# pytest's code for a file without a test that was asked for.
NOTHING_COLLECTED = 5


@dataclass(frozen=True, kw_only=True)
class Step:
    """A process: its name, its command, and after how many seconds it is stopped.

    cases: the benchmark's cases that it measures.
    """

    name: str
    command: Sequence[str]
    seconds: float
    cases: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps that run side by side, ``jobs`` at a time, the first ones first."""

    name: str
    steps: Sequence[Step]
    jobs: int = 1


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a step; ``code`` is its exit status, None where it was stopped."""

    step: Step
    code: int | None
    seconds: float

    @property
    def passed(self) -> bool:
        """True where the step succeeded."""
        return self.code in (0, NOTHING_COLLECTED)

    def __str__(self) -> str:
        how = "stopped" if self.code is None else "done" if self.passed else f"code {self.code}"
        return f"{self.step.name}: {how} after {self.seconds:.0f} s"


def plan(cases: Iterable[str], *, cores: int, folder: Path) -> list[Phase]:
    """List what is done in which order on a machine of so many cores."""
    jobs = max(1, cores - 2)
    # torch's allocator hides what lies beside a tensor.
    plain = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    sanitizer = shutil.which("compute-sanitizer") or "compute-sanitizer"
    names = _in_turn(cases)
    sanitized = [sanitizer, "--error-exitcode", "9", *_generated(NUM_SANITIZED, seed=11)]
    return [
        Phase(name="correctness", steps=_checks(), jobs=jobs),
        Phase(name="tests", steps=_tests(), jobs=jobs),
        Phase(
            name="cases",
            steps=[
                _measure(names[first : first + CASES_PER_STEP], folder)
                for first in range(0, len(names), CASES_PER_STEP)
            ],
        ),
        Phase(
            name="compute-sanitizer",
            steps=[
                Step(
                    name="compute-sanitizer",
                    command=sanitized,
                    seconds=TEST_SECONDS,
                    environment=plain,
                )
            ]
            if Path(sanitizer).is_file()
            else [],
        ),
    ]


def _checks() -> list[Step]:
    python = (sys.executable, "-m", "tests.kernels.first_checks")
    checks: dict[str, tuple[str, ...]] = {"one token": ("--lengths", "1")}
    for size, dropout in CHECKED_HEADS:
        name = f"attention d{size}{' dropout' if dropout else ''}"
        checks[name] = ("--head-dim", str(size), "--dropout", str(dropout))
    checks |= {f"layer norm{' dropout' if x else ''}": ("--norm", str(x)) for x in (0.0, 0.1)}
    return [
        Step(name=name, command=(*python, *given), seconds=CHECK_SECONDS)
        for name, given in checks.items()
    ]


def _tests() -> list[Step]:
    """List the tests file by file, those with most kernels first."""
    others = ("test_packing.py", "models/captured/test_graphs.py")
    paths = [*(ROOT / "tests" / "ops").rglob("test_*.py"), *(ROOT / "tests" / p for p in others)]
    steps = []
    for path in sorted(paths, key=lambda path: (-PARTS.get(path.name, 1), path)):
        count = PARTS.get(path.name, 1)
        for part in range(count):
            name = path.relative_to(ROOT).as_posix()
            shard = f"{part}/{count}"
            suffix = f" {part + 1} of {count}" if count > 1 else ""
            command = _pytest_command(name, shard)
            steps.append(Step(name=f"{name}{suffix}", command=command, seconds=TEST_SECONDS))
    cases = NUM_GENERATED // GENERATED_PARTS
    generated = [
        Step(
            name=f"generated cases of seed {seed}",
            command=_generated(cases, seed=seed),
            seconds=TEST_SECONDS,
        )
        for seed in range(7, 7 + GENERATED_PARTS)
    ]
    return [*generated, *steps]


def _generated(number: int, *, seed: int) -> list[str]:
    """Draw cases of all operations, each by the kernels, from a seed."""
    options = ["--by", "triton", "--cases", str(number), "--seed", str(seed)]
    return [sys.executable, "-m", "tests.ops.generated", *options]


def _pytest_command(path: str, part: str) -> list[str]:
    """Run the gpu tests without the plug-ins that the project's own options count on."""
    # Newer and older versions of torch warn of what this one does not.
    options = ["-o", "addopts=", "-W", "default", "-rf", "-q", "--strict-markers"]
    plugins = ["-p", "no:cacheprovider", "-p", "tests.parts", "--part", part]
    return [sys.executable, "-m", "pytest", *options, *plugins, "-m", "gpu", path]


def _measure(cases: Sequence[str], folder: Path) -> Step:
    options = ["--device", "cuda", "--no-compile", "--output", str(folder)]
    command = [sys.executable, "-m", "benchmarks", "run", *cases, *options]
    seconds = CASE_SECONDS + NEXT_CASE_SECONDS * (len(cases) - 1)
    name = cases[0] if len(cases) == 1 else f"{cases[0]} to {cases[-1]}"
    return Step(name=name, command=command, seconds=seconds, cases=cases)


def _in_turn(cases: Iterable[str]) -> list[str]:
    found = [name for name in cases if not name.startswith(APART)]
    return [*(name for name in FIRST if name in found), *(n for n in found if n not in FIRST)]


def run_step(step: Step, seconds: float, logs: Path) -> Ended:
    """Run a step for so long at most; what it prints goes to a file at once."""
    logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log_of(step, logs).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env=os.environ | step.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # What it has started ends with it.
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ended(step=step, code=code, seconds=time.monotonic() - began)


def log_of(step: Step, logs: Path) -> Path:
    """Name the file of what a step prints."""
    return logs / f"{''.join(c if c.isalnum() else '-' for c in step.name)}.txt"


def main() -> int:
    """Run all phases and return the exit code."""
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured on a GPU")
        return 1
    from benchmarks.registry import choose_cases

    folder = Path(os.environ.get("OUT") or records.FOLDER).resolve()
    if importlib.util.find_spec("encoder_engine._native") is None:
        print("the cases need the extension: python -m pip install --no-deps -e . builds it")
        return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    cases = [spec.name for spec in choose_cases([], "cuda")]
    phases = plan(cases, cores=os.cpu_count() or 1, folder=folder)
    logs = folder / "logs" if "OUT" in os.environ else ROOT / "build" / "gpu"
    return run_plan(phases, folder, logs, ends=time.monotonic() + ALL_SECONDS)


def run_plan(phases: Sequence[Phase], folder: Path, logs: Path, *, ends: float) -> int:
    """Run the phases until a deadline of the monotonic clock; print a line for each step."""
    failed: list[str] = []

    def run(step: Step) -> None:
        left = ends - time.monotonic()
        if left < LEAST_SECONDS:
            print(f"{step.name}: no time was left", flush=True)
            failed.append(step.name)
            return
        known = {result.run for result in _results(folder)}
        ended = run_step(step, min(step.seconds, left), logs)
        measured: dict[str, list[Result]] = {}
        for result in _results(folder):
            if result.run not in known:
                measured.setdefault(result.case, []).append(result)
        lines = [summary(results) for results in measured.values()]
        if ended.passed:
            print("\n".join(lines or [str(ended)]), flush=True)
            return
        print("\n".join([*_last_lines(log_of(step, logs)), *lines, str(ended)]), flush=True)
        left_out = [c for c in step.cases if not _is_measured(measured.get(c, []))]
        if len(step.cases) < 2 or not left_out:
            failed.append(step.name)
            return
        for case in left_out:
            if _is_wrong(measured.get(case, [])):
                failed.append(case)
            else:
                run(_measure([case], folder))

    for phase in phases:
        print(f"== {phase.name}", flush=True)
        with ThreadPoolExecutor(max_workers=phase.jobs) as pool:
            list(pool.map(run, phase.steps))
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    print(f"results in {folder}, what was printed in {logs}")
    return 1 if failed else 0


def _is_wrong(run: Sequence[Result]) -> bool:
    """Tell whether a result of the engine's was wrong, which no later one makes right."""
    return any(result.role == "ours" and result.status == "gate failed" for result in run)


def _is_measured(run: Sequence[Result]) -> bool:
    """Tell whether a case was measured, and none of the engine's candidates failed."""
    statuses = {result.status for result in run if result.role == "ours"}
    return "measured" in statuses and statuses.isdisjoint({"failed", "gate failed"})


def _results(folder: Path) -> list[Result]:
    return list(records.read(folder)) if folder.is_dir() else []


def _last_lines(log: Path, number: int = 12) -> list[str]:
    """Return the end of a log: the cause of a failure, within what a terminal keeps."""
    return [line[:160] for line in log.read_text("utf-8", errors="replace").splitlines()[-number:]]


def summary(run: Sequence[Result]) -> str:
    """Format a case as one line: the engine's default candidate and the best peer."""
    ours = default(run)
    if ours is None or ours.p50_ms is None:
        reasons = [f"{r.candidate}: {r.reason}" for r in run if r.role == "ours" and r.reason]
        return f"{run[0].case:<34} the default was not measured; {'; '.join(reasons)}"
    line = f"{ours.case:<34} {ours.candidate:<24} {ours.p50_ms:>9.4g} ms"
    if ours.fraction_of_limit is not None:
        line += f" {ours.fraction_of_limit:>4.0%} of the limit"
    if ours.ratio_to_best_peer is not None:
        line += f" {ours.ratio_to_best_peer:>6.2f} x {ours.best_peer}"
    return line


if __name__ == "__main__":
    sys.exit(main())
