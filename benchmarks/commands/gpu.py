"""Tests and measures the engine on an NVIDIA GPU: ``python -m benchmarks.commands.gpu``.

Run from the root of a checkout; nothing is installed and nothing is fetched. Builds the extension
in place; runs the tests marked ``gpu``, generated cases and, where it is installed, NVIDIA's
compute-sanitizer on some of them, several at a time; then the cases of the device, one at a time,
and prints one table last. How cost grows is left to ``python -m benchmarks run growth``. Exits with
1 where there is no CUDA device, or where anything failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records.results import Result

ROOT = Path(__file__).resolve().parents[2]
TESTS = (*sorted((ROOT / "tests" / "ops").rglob("test_*.py")), ROOT / "tests" / "test_packing.py")
# Cases of all operations, each by the kernels, drawn from a seed.
GENERATED = [sys.executable, "-m", "tests.ops.generated", "--by", "triton"]
NUM_GENERATED, NUM_SANITIZED = 400, 12
# The whole must end within ten minutes, whatever hangs.
ALL_SECONDS, BUILD_SECONDS, TEST_SECONDS = 570, 120, 240
# What is asked first if the time is short.
FIRST = ("attention", "masked_cross_entropy", "encoder", "layer_norm", "bias_gelu")
# What takes minutes by itself, and is asked for by itself.
APART = "growth/"


def main() -> int:
    """Build, test and measure on the GPU; return the exit code."""
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured on a GPU")
        return 1
    ends = time.monotonic() + ALL_SECONDS
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    failures = [] if _run("build", build, BUILD_SECONDS) else ["build"]
    failures += _tests()
    failures += _benchmarks(ends)
    print(f"failed: {', '.join(failures)}" if failures else "all passed")
    return 1 if failures else 0


def _tests() -> list[str]:
    """Run the tests file by file, several at a time: compiling kernels is work for processors."""
    jobs = [(path.relative_to(ROOT).as_posix(), _pytest_command(path)) for path in TESTS]
    jobs.append(("generated cases", [*GENERATED, "--cases", str(NUM_GENERATED), "--seed", "7"]))
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer: skipped: it is not installed", flush=True)
    else:
        # torch's allocator hides what lies beside a tensor.
        plain = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"]
        watched = [*GENERATED, "--cases", str(NUM_SANITIZED), "--seed", "11"]
        command = [*plain, sanitizer, "--error-exitcode", "9", *watched]
        jobs.append(("compute-sanitizer", command))
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 2)) as pool:
        passed = list(pool.map(lambda job: _run(job[0], job[1], TEST_SECONDS), jobs))
    return [name for (name, _), fine in zip(jobs, passed, strict=True) if not fine]


def _pytest_command(path: Path) -> list[str]:
    """Run the gpu tests without the plug-ins that the project's own options count on."""
    # Newer and older versions of torch warn of what this one does not.
    options = [
        "-o",
        "addopts=",
        "-W",
        "default",
        "-rf",
        "-q",
        "--strict-markers",
        "-p",
        "no:cacheprovider",
    ]
    return [sys.executable, "-m", "pytest", *options, "-m", "gpu", str(path)]


# pytest's code for a file without a test that was asked for.
_NOTHING_COLLECTED = 5


def _run(what: str, command: Sequence[str], seconds: int) -> bool:
    """Run a command, and print the end of its output when it is done."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            timeout=seconds,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode(errors="replace")
        print(f"{_last(printed)}== {what}: stopped after {seconds} s", flush=True)
        return False
    fine = done.returncode in (0, _NOTHING_COLLECTED)
    ended = "done" if fine else f"failed with code {done.returncode}"
    printed = _last(done.stdout, 3 if fine else 60)
    print(f"{printed}== {what}: {ended} in {time.monotonic() - started:.0f} s", flush=True)
    return fine


def _last(printed: str, lines: int = 60) -> str:
    return "".join(f"{line}\n" for line in printed.splitlines()[-lines:])


def _benchmarks(ends: float) -> list[str]:
    """Measure the cases on the GPU; return what failed. Starts none after its time is up."""
    from benchmarks.commands.run_case import open_console, run_case
    from benchmarks.measuring.case import Options
    from benchmarks.measuring.machine import find_device
    from benchmarks.records import results as records
    from benchmarks.registry import choose_cases

    machine, console = find_device("cuda"), open_console()
    runs: list[list[Result]] = []
    failures = []
    specs = [spec for spec in choose_cases([], "cuda") if not spec.name.startswith(APART)]
    for spec in sorted(specs, key=lambda spec: _turn(spec.name)):
        if time.monotonic() > ends:
            failures.append(f"{spec.name} (no time was left)")
            continue
        lines = run_case(spec, Options(device="cuda"), machine, console, rounds=None)
        if lines:
            records.append(lines)
            runs.append(lines)
        if any(r.role == "ours" and r.status in ("failed", "gate failed") for r in lines):
            failures.append(spec.name)
    _print_summary(runs)
    return failures


def _turn(case: str) -> int:
    """Return a case's position in the order of measurement: the listed operations come first."""
    places = [place for place, name in enumerate(FIRST) if case.startswith(name)]
    return places[0] if places else len(FIRST)


def _print_summary(runs: list[list[Result]]) -> None:
    """Print one line per case: the engine's fastest candidate beside the best peer."""
    header = f"{'case':<32} {'ours':<26} {'p50 ms':>9} {'peak MiB':>9} {'of limit':>8}"
    print(f"\n{header} {'x best peer':>11}  best peer")
    for run in runs:
        ours = [r for r in run if r.role == "ours" and r.p50_ms is not None]
        if not ours:
            print(f"{run[0].case:<32} nothing of ours was measured")
            continue
        best = min(ours, key=lambda r: r.p50_ms or 0.0)
        ratio = "" if best.ratio_to_best_peer is None else f"{best.ratio_to_best_peer:.2f}"
        limit = "" if best.fraction_of_limit is None else f"{best.fraction_of_limit:.0%}"
        print(
            f"{best.case:<32} {best.candidate:<26} {best.p50_ms:>9.4g} "
            f"{best.peak_mib or 0.0:>9.1f} {limit:>8} {ratio:>11}  {best.best_peer or ''}"
        )


if __name__ == "__main__":
    sys.exit(main())
