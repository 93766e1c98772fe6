"""Runs one candidate in its own process: ``python -m benchmarks.measuring.worker_main FD``."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.case import Candidate
from benchmarks.measuring.memory import Peak, resident_kib, tree_peak
from benchmarks.measuring.runner import CandidateError, LocalRunner, describe

if TYPE_CHECKING:
    from benchmarks.measuring.timing import Sample


class Servant:
    """Answers the requests of the parent process: each request calls the method of its name."""

    runner: LocalRunner

    def use_threads(self, threads: int) -> None:
        """Restrict the process to ``threads`` cores, even if a library ignores thread settings."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])

    def run(self, pickled: bytes) -> Any:
        return _unpickle(pickled)()

    def build(self, pickled: bytes) -> None:
        build, settings, single = _unpickle(pickled)
        candidate = Candidate(name="", role="ours", build=build)
        self.runner = LocalRunner(candidate, settings, "cpu", single=single)

    def warm_up(self) -> Any:
        return self.runner.warm_up()

    def answer(self) -> Any:
        return self.runner.answer()

    def sample(self) -> Sample:
        return self.runner.sample()

    def first_sample(self) -> tuple[Sample, Peak | None]:
        """Time the process's first call, and measure the resident memory that it adds."""
        before = resident_kib()
        found = self.runner.sample()
        after = resident_kib()
        if before is None or after is None:
            return found, None
        return found, Peak(mib=max(after - before, 0) / 1024, of="first call")

    def peak(self) -> Peak | None:
        return tree_peak()


def serve(connection: Connection) -> None:
    """Answer requests until the pipe closes, with ``(True, result)`` or ``(False, reason)``."""
    servant = Servant()
    while True:
        try:
            request, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(servant, request)(*arguments))
        except CandidateError as error:
            answer = (False, str(error))
        except Exception as error:
            answer = (False, describe(error))
        connection.send(answer)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (prctl PR_SET_PDEATHSIG, on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


class _DeferredNumpy(ModuleType):
    """Stands for NumPy in modules that import it early; using a name of it imports NumPy."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("numpy") is self:
            del sys.modules["numpy"]
        value = getattr(importlib.import_module("numpy"), name)
        setattr(self, name, value)
        return value


def _unpickle(pickled: bytes) -> Any:
    """Unpickle a candidate without importing NumPy, for a cold start must count NumPy's import.

    The modules that describe candidates import NumPy, and are imported here, before the clock
    starts. Later imports find no stand-in: a library whose C code imports a part of NumPy first
    would load that part twice, once within the other.
    """
    spec = None if "numpy" in sys.modules else importlib.util.find_spec("numpy")
    if spec is None:
        return pickle.loads(pickled)
    deferred = _DeferredNumpy("numpy")
    deferred.__spec__ = spec
    sys.modules["numpy"] = deferred
    try:
        return pickle.loads(pickled)
    finally:
        if sys.modules.get("numpy") is deferred:
            del sys.modules["numpy"]


if __name__ == "__main__":
    end_with_parent()
    serve(Connection(int(sys.argv[1])))
