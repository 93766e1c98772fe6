"""Tests and measures on an NVIDIA GPU, step by step: ``python -m benchmarks gpu``.

A GPU is often lent for minutes only. The work is therefore cut into steps of a minute at most, the
open questions first (:func:`plan`). Every step has a correctness gate of its own, and
is a process with a time limit: neither a hang nor an illegal memory access costs another step its
result. A ledger file lists what has passed, and the next run goes on from there. Nothing is
installed or built.

``OUT`` names the output folder (default: benchmarks/results). Results and ledger are JSON lines:
those of another folder are appended to benchmarks/results by ``cat``. Triton's own
``TRITON_CACHE_DIR`` names a folder of kernels compiled before.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.gpu.ledger import Ledger, make_key
from benchmarks.gpu.plan import Phase, account, plan
from benchmarks.gpu.processes import Runner
from benchmarks.measuring.machine import ROOT, find_commit, find_device, find_versions
from benchmarks.records import results as records
from benchmarks.records.runs import default

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu.plan import Step
    from benchmarks.gpu.processes import Ended
    from benchmarks.records.results import Result

# The limit of a step, and the default of --seconds.
LIMIT_SECONDS, ALL_SECONDS = 60, 540
LOG = "gpu-log.txt"


class Piece:
    """One run of the plan's steps, until a deadline (``ends``, by the monotonic clock).

    ``folder``: gets results, ledger and log.
    ``facts``: versions and GPU of this machine, a part of every step's key in the ledger.
    """

    def __init__(self, folder: Path, runner: Runner, *, facts: dict[str, str], ends: float) -> None:
        self._folder, self._runner, self._facts, self._ends = folder, runner, facts, ends
        self._ledger = Ledger(folder, records.FOLDER)
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._commit = find_commit().name
        self._passed: set[str] = set()
        self.counts = dict.fromkeys(("passed", "failed", "stopped", "skipped", "left"), 0)

    def run(self, phases: Sequence[Phase]) -> None:
        """Run all steps that have not passed yet; unchanged steps that failed before come last."""
        again: list[Step] = []
        for phase in phases:
            steps: list[Step] = []
            for step in phase.steps:
                known = self._ledger.outcome(self._key(step))
                if known == "passed":
                    self.counts["skipped"] += 1
                    self._passed.add(step.name)
                else:
                    (steps if known is None else again).append(step)
            self._run_phase(replace(phase, steps=steps), len(phase.steps))
        self._run_phase(Phase(name="what did not pass before", steps=again), len(again))

    @property
    def succeeded(self) -> bool:
        """Return whether no step failed or hit its limit, and nobody stopped the run."""
        return not (self._stopped.is_set() or self.counts["failed"] or self.counts["stopped"])

    def stop(self) -> None:
        """End the running steps without ledger entries, and start no more."""
        self._stopped.set()
        self._runner.close()

    def _run_phase(self, phase: Phase, whole: int) -> None:
        if not whole:
            return
        skipped = f", {whole - len(phase.steps)} passed before" if len(phase.steps) < whole else ""
        print(f"== {phase.name}: {whole} steps{skipped}", flush=True)
        with ThreadPoolExecutor(max_workers=phase.jobs) as pool:
            list(pool.map(self._run_step, phase.steps))

    def _key(self, step: Step) -> str:
        return make_key(step.command, step.sources, sorted(self._facts.values()))

    def _run_step(self, step: Step, *, again: bool = False) -> None:
        seconds = self._ledger.seconds(step.name) or step.seconds
        left = self._ends - time.monotonic()
        if self._stopped.is_set() or seconds > left:
            self._count("left")
            return
        awaited = [name for name in step.after if name not in self._passed]
        if awaited:
            print(f"{step.name}: left, as this has not passed: {'; '.join(awaited)}", flush=True)
            self._count("left")
            return
        known = {result.run for result in _results(self._folder)}
        saving = ("--output", str(self._folder)) if step.saves else ()
        ended = self._runner.run(step, min(LIMIT_SECONDS, left), saving)
        if self._stopped.is_set():
            return
        if ended.outcome == "stopped" and left < LIMIT_SECONDS:
            # Whoever had the time for it might have ended it.
            self._count("left")
            return
        with self._lock:
            self._note(ended, known)
            if ended.outcome == "passed":
                self._passed.add(step.name)
        self._count(ended.outcome)
        if ended.outcome == "stopped" and step.again and not again:
            self._run_step(step, again=True)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _note(self, ended: Ended, known: set[str]) -> None:
        """Add a step's end to the ledger and print it, with the results that it recorded."""
        log = self._runner.log_of(ended.step).read_text("utf-8", errors="replace")
        last = "" if ended.outcome == "passed" else "\n".join(log.splitlines()[-12:])
        self._ledger.add(
            key=self._key(ended.step),
            step=ended.step.name,
            **self._facts,
            commit=self._commit,
            time_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            outcome=ended.outcome,
            seconds=round(ended.seconds, 1),
            message=last[-1000:],
        )
        with (self._folder / LOG).open("a", encoding="utf-8") as whole:
            whole.write(f"== {ended}\n{log}\n")
        found: dict[str, list[Result]] = {}
        for result in _results(self._folder):
            if result.run not in known:
                found.setdefault(result.case, []).append(result)
        lines = [summary(run) for run in found.values()]
        # What is printed last of a failure is its cause; a terminal keeps so much of it.
        causes = [line[:160] for line in last.splitlines()]
        print("\n".join([*causes, *lines, str(ended)]), flush=True)


def _results(folder: Path) -> list[Result]:
    return list(records.read(folder)) if folder.is_dir() else []


def summary(run: Sequence[Result]) -> str:
    """Format a case's results as one line: the engine's default candidate and the best peer."""
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


def require_gpu() -> None:
    """Raise a usage error if the machine has no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise click.ClickException("no CUDA device: nothing was measured on a GPU")


@click.command()
@click.option("--seconds", default=ALL_SECONDS, show_default=True, help="How long it may take.")
@click.option("--plan", "only_plan", is_flag=True, help="Only tell what would be done, and when.")
@click.option("--rehearse", is_flag=True, help="Run on the CPU, with the smallest sizes.")
def gpu(seconds: float, *, only_plan: bool, rehearse: bool) -> int:
    """Test and measure on a GPU what has not passed there yet, in steps of a minute at most.

    Results, ledger and log go to the folder that OUT names; default: benchmarks/results, and
    build/gpu-rehearsal for a rehearsal.
    """
    from benchmarks.registry import choose_cases

    usual = ROOT / "build" / "gpu-rehearsal" if rehearse else records.FOLDER
    folder = Path(os.environ.get("OUT") or usual).resolve()
    cores = 16 if only_plan else os.cpu_count() or 1
    phases = plan(choose_cases([], "cuda"), cores=cores, rehearsed=rehearse)
    if only_plan:
        ledger = Ledger(folder, records.FOLDER)
        click.echo(account(phases, lambda step: ledger.seconds(step.name) or step.seconds))
        return 0
    if not rehearse:
        require_gpu()
    if importlib.util.find_spec("encoder_engine._native") is None:
        command = "pip install --no-deps --no-build-isolation -e ."
        raise click.ClickException(f"the extension is missing; {command} builds it")
    device = find_device("cpu" if rehearse else "cuda").name
    versions = find_versions(["transformers"])
    libraries = ("torch", "triton", "transformers")
    facts = {"device": device} | {name: versions.get(name, "") for name in libraries}
    print(", ".join(f"{value}" for value in facts.values()), flush=True)
    if rehearse:
        # Read as Triton is imported.
        os.environ.setdefault("TRITON_INTERPRET", "1")
    runner = Runner(ROOT / "build" / "gpu", "cpu" if rehearse else "cuda")
    piece = Piece(folder, runner, facts=facts, ends=time.monotonic() + seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: piece.stop())
    piece.run(phases)
    counts = ", ".join(f"{number} {what}" for what, number in piece.counts.items())
    print(f"{counts}; in {folder}", flush=True)
    return 0 if piece.succeeded else 1
