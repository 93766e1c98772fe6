"""Runs the steps of a GPU plan, each in a process of its own with a time limit.

The processes are forked from one that has imported the libraries: that takes 11 of the 13 seconds
that a new interpreter needs until its first case.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import runpy
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import cases
from benchmarks.measuring.machine import ROOT
from benchmarks.measuring.worker_main import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.gpu.plan import Step

# Imported before any step is forked, beside the cases. None of them touches the GPU.
PRELOADED = [
    *("torch", "triton", "pytest", "benchmarks.__main__"),
    "transformers.models.bert.modeling_bert",
    "transformers.models.modernbert.modeling_modernbert",
]
# pytest's code for a file, or a part of it, without a test that was asked for.
NOTHING_COLLECTED = 5


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a step; ``code`` is its exit status, None if it was stopped at its limit."""

    step: Step
    code: int | None
    seconds: float

    @property
    def outcome(self) -> str:
        """Return "passed", "failed" or "stopped"; a part of a file without tests has passed."""
        if self.code is None:
            return "stopped"
        is_part = "--part" in self.step.command and "0/1" not in self.step.command
        passed = self.code == 0 or (is_part and self.code == NOTHING_COLLECTED)
        return "passed" if passed else "failed"

    def __str__(self) -> str:
        how = f"failed with {self.code}" if self.outcome == "failed" else self.outcome
        return f"{self.step.name}: {how} after {self.seconds:.0f} s"


class Runner:
    """Runs steps in processes of their own; closing it ends those that still run.

    ``method``: how :mod:`multiprocessing` starts them; "spawn" where ``device`` does not survive a
    fork.
    """

    def __init__(self, logs: Path, device: str) -> None:
        # Closing comes from a signal handler, perhaps within a thread's own section.
        self._logs, self._running, self._lock = logs, set[int](), threading.RLock()
        self._closed = False
        logs.mkdir(parents=True, exist_ok=True)
        # Whether there is a GPU is asked without the driver, which does not survive a fork.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        found = pkgutil.walk_packages(cases.__path__, f"{cases.__name__}.")
        multiprocessing.set_forkserver_preload([*PRELOADED, *(module.name for module in found)])
        self.method = "forkserver"
        context: Any = multiprocessing.get_context(self.method)
        probe = context.Process(target=_touch, args=(device,))
        probe.start()
        probe.join()
        if probe.exitcode != 0:
            self.method = "spawn"

    def run(self, step: Step, seconds: float, options: Sequence[str] = ()) -> Ended:
        """Run a step for at most so many seconds; its output goes to its log at once."""
        log = self.log_of(step)
        log.write_text("", "utf-8")
        context: Any = multiprocessing.get_context(self.method)
        process = context.Process(
            target=_execute, args=((*step.command, *options), step.environment, log)
        )
        began = time.monotonic()
        # Starting a process looks for the ends of all others, which only one thread may.
        with self._lock:
            if self._closed:
                return Ended(step=step, code=None, seconds=0.0)
            process.start()
            self._running.add(process.pid)
        connection.wait([process.sentinel], seconds)
        with self._lock:
            code = process.exitcode
            self._end(process.pid)
            process.join()
        return Ended(step=step, code=code, seconds=time.monotonic() - began)

    def log_of(self, step: Step) -> Path:
        """Return the path of the log of a step's output."""
        return self._logs / f"{''.join(c if c.isalnum() else '-' for c in step.name)}.txt"

    def _end(self, pid: int) -> None:
        """Kill a process, if it still runs, and all processes that it started."""
        for kill in (os.killpg, os.kill):  # it may not lead its group yet
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        self._running.discard(pid)

    def close(self) -> None:
        """Kill all running steps, and start no more."""
        with self._lock:
            self._closed = True
            for pid in list(self._running):
                self._end(pid)


def _touch(device: str) -> None:
    import torch

    torch.zeros(1, device=device)


def _execute(command: Sequence[str], environment: dict[str, str], log: Path) -> None:
    """Run the command of a step in this process, with its output in ``log``."""
    os.setsid()
    end_with_parent()
    os.environ.update(environment)
    os.chdir(ROOT)
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(opened, stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    module, *arguments = command
    if Path(module).is_absolute():
        os.execv(module, list(command))
    sys.path.insert(0, str(ROOT))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
