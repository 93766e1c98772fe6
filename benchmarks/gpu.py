"""Tests and measures the engine on a machine with an NVIDIA GPU: ``python -m benchmarks.gpu``.

Run from the root of a checkout; nothing is installed and nothing is fetched. Builds the extension
in place, runs the tests marked ``gpu``, then every case of the device, and prints one table last.
Exits with 1 where there is no CUDA device, or where a build, a test or a gate failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.results import Result

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/ops", "tests/models")
# The whole must end within ten minutes, whatever hangs.
BUILD_SECONDS, TEST_SECONDS, BENCHMARK_SECONDS = 120, 240, 210


def main() -> int:
    """Do all of it and return the exit code."""
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured on a GPU")
        return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    failures = []
    if not _run("build", [sys.executable, "setup.py", "build_ext", "--inplace"], BUILD_SECONDS):
        failures.append("the build")
    if not _run("tests", _pytest_command(), TEST_SECONDS):
        failures.append("the tests")
    failures += _benchmarks()
    print(f"failed: {', '.join(failures)}" if failures else "all passed")
    return 1 if failures else 0


def _pytest_command() -> list[str]:
    """Run the gpu tests without the plug-ins that the project's own options count on."""
    options = ["-o", "addopts=", "-ra", "-q", "--strict-markers", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", *options, "-m", "gpu", *TESTS]


def _run(what: str, command: list[str], seconds: int) -> bool:
    print(f"== {what}: at most {seconds} s", flush=True)
    started = time.monotonic()
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"== {what}: stopped after {seconds} s", flush=True)
        return False
    ended = "done" if code == 0 else f"failed with code {code}"
    print(f"== {what}: {ended} in {time.monotonic() - started:.0f} s", flush=True)
    return code == 0


def _benchmarks() -> list[str]:
    """Measure every case on the GPU; return what failed. Starts none after its time is up."""
    from benchmarks import results as records
    from benchmarks.__main__ import open_console, run_case
    from benchmarks.case import Options
    from benchmarks.machine import find_device
    from benchmarks.registry import choose_cases

    machine, console = find_device("cuda"), open_console()
    ends = time.monotonic() + BENCHMARK_SECONDS
    runs: list[list[Result]] = []
    failures = []
    for spec in choose_cases([], "cuda"):
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


def _print_summary(runs: list[list[Result]]) -> None:
    """Print one line per case: the fastest of ours beside the best peer."""
    print(f"\n{'case':<28} {'ours':<26} {'p50 ms':>9} {'peak MiB':>9} {'x best peer':>11}")
    for run in runs:
        ours = [r for r in run if r.role == "ours" and r.p50_ms is not None]
        if not ours:
            print(f"{run[0].case:<28} nothing of ours was measured")
            continue
        best = min(ours, key=lambda r: r.p50_ms or 0.0)
        ratio = "" if best.ratio_to_best_peer is None else f"{best.ratio_to_best_peer:.2f}"
        print(
            f"{best.case:<28} {best.candidate:<26} {best.p50_ms:>9.4g} "
            f"{best.peak_mib or 0.0:>9.1f} {ratio:>11}"
        )


if __name__ == "__main__":
    sys.exit(main())
