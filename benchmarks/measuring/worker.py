"""Runs a candidate in its own process, which imports only what the candidate needs.

The process may run another interpreter, with libraries that conflict with the engine's.
"""

from __future__ import annotations

import os
import pickle
import signal
import statistics
import subprocess
import sys
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks.measuring.memory import Peak
from benchmarks.measuring.runner import CandidateError

if TYPE_CHECKING:
    from benchmarks.measuring.case import Call, Candidate, Settings
    from benchmarks.measuring.timing import Sample

ROOT = Path(__file__).resolve().parents[2]
# Every library learns the number of threads before it loads, and stays off the network.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
# pip compiles what it installs; a checkout's bytecode is written at the first import, unless this
# is set, and a cold start would compile the engine and none of its peers.
_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


class WorkerRunner:
    """Runs a candidate in a new interpreter of its own."""

    def __init__(
        self, candidate: Candidate, settings: Settings, threads: int, *, single: bool = False
    ) -> None:
        self._worker = _start(candidate, settings, threads, single=single)

    def warm_up(self) -> Any:
        return self._worker.ask("warm_up")

    def sample(self) -> Sample:
        return cast("Sample", self._worker.ask("sample"))

    def peak(self) -> Peak | None:
        return cast("Peak | None", self._worker.ask("peak"))

    def close(self) -> None:
        self._worker.close()


class FreshRunner:
    """Runs a candidate in a new interpreter for every sample, which times the first call."""

    def __init__(self, candidate: Candidate, settings: Settings, threads: int) -> None:
        self._start = partial(_start, candidate, settings, threads)
        self._left_mib: list[float] = []

    def warm_up(self) -> Any:
        worker = self._start()
        try:
            return worker.ask("answer")
        finally:
            worker.close()

    def sample(self) -> Sample:
        worker = self._start()
        try:
            found, left = cast("tuple[Sample, Peak | None]", worker.ask("first_sample"))
        finally:
            worker.close()
        if left is not None:
            self._left_mib.append(left.mib)
        return found

    def peak(self) -> Peak | None:
        if not self._left_mib:
            return None
        return Peak(mib=statistics.median(self._left_mib), of="first call")

    def close(self) -> None:
        self._left_mib.clear()


def _start(
    candidate: Candidate, settings: Settings, threads: int, *, single: bool = False
) -> _Worker:
    worker = _Worker(threads, candidate.python)
    worker.ask("build", pickle.dumps((candidate.build, dict(settings), single)))
    return worker


def run_in_worker(function: Call, threads: int, python: str | None = None) -> Any:
    """Run a picklable function in its own process and return its result."""
    worker = _Worker(threads, python)
    try:
        return worker.ask("run", pickle.dumps(function))
    finally:
        worker.close()


class _Worker:
    """A process that runs a candidate, and the pipe to the process.

    It is suspended between requests. Otherwise its threads that wait by spinning, as OpenMP's do
    for a while after a call, would take a core from the candidate that is timed next.
    """

    def __init__(self, threads: int, python: str | None = None) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            command = [python or sys.executable, "-m", "benchmarks.measuring.worker_main"]
            variables = {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), **_QUIET}
            try:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    cwd=ROOT,
                    env={**os.environ, **variables} | _INSTALLED,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                self._connection.close()
                raise CandidateError(f"its interpreter does not start: {error.strerror}") from error
        self.ask("use_threads", threads)

    def ask(self, request: str, *arguments: object) -> Any:
        try:
            self._process.send_signal(signal.SIGCONT)
            self._connection.send((request, arguments))
            done, answer = self._connection.recv()
            self._process.send_signal(signal.SIGSTOP)
        except (EOFError, OSError) as error:
            self.close()
            raise CandidateError(f"its process ended with code {self._process.poll()}") from error
        if not done:
            self.close()
            raise CandidateError(answer)
        return answer

    def close(self) -> None:
        self._connection.close()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
