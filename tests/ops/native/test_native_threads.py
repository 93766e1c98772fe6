"""The extension's own threads: without PyTorch, from many callers, in forked children."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from encoder_engine.ops.cpu import native_instruction_set
from tests import ROOT

pytestmark = pytest.mark.skipif(native_instruction_set() is None, reason="not built")

# Loads the extension by its path: the package may import PyTorch, which brings OpenMP.
PROGRAM = """
import importlib.util, os, sys, threading
import numpy as np
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
x = np.random.default_rng(0).normal(size=(3000, 256)).astype(np.float32)

def activate(num_threads):
    found = np.empty_like(x)
    place = (x.ctypes.data, 0, found.ctypes.data)
    native.activate_rows(False, "gelu", False, *place, *x.shape, num_threads)
    return found.tobytes()

expected = activate(1)
wrong = []

def repeat():
    wrong.extend(1 for _ in range(10) if activate(4) != expected)

def call_from_many():
    callers = [threading.Thread(target=repeat) for _ in range(16)]
    [caller.start() for caller in callers]
    [caller.join() for caller in callers]

call_from_many()
assert "libgomp" not in open("/proc/self/maps").read()
child = os.fork()
if child == 0:
    call_from_many()
    os._exit(len(wrong))
assert os.waitpid(child, 0)[1] == 0
call_from_many()
import torch
call_from_many()
assert activate(4) == expected and not wrong
print(native.default_threads())
"""


def run(**environment: str) -> int:
    from encoder_engine import _native

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, _native.__file__],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_work_without_a_runtime_after_a_fork_and_beside_one() -> None:
    assert run(OMP_NUM_THREADS="3") == 3


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="there is no affinity here")
def test_the_default_is_within_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    from encoder_engine import _native

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    allowed = os.sched_getaffinity(0)
    assert 1 <= _native.default_threads() <= len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert _native.default_threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)
