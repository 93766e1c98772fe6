"""Cases that cost nothing, for tests of the harness."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.case import Call, Candidate, Case, Role, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

RIGHT = 42


def judge(output: object) -> Verdict:
    """Pass what is right; report what was found either way."""
    figures = {"found": float(output)} if isinstance(output, int) else {}
    if output == RIGHT:
        return Verdict(passed=True, figures=figures)
    return Verdict(passed=False, figures=figures, reason=f"{output} is not {RIGHT}")


def candidate(
    name: str, call: Callable[[], Any] = lambda: RIGHT, *, role: Role = "peer", **options: Any
) -> Candidate:
    """Make a candidate of a call that needs no building."""
    return Candidate(name=name, role=role, build=lambda: call, **options)


def case(*candidates: Candidate, isolated: bool = False) -> Case:
    """Put candidates into a case."""
    return Case(
        name="fake/case",
        candidates=candidates,
        gate=judge,
        fingerprint="f00d",
        seed=3,
        amounts={"documents": 10},
        isolated=isolated,
        rounds=5,
    )


# Builders for isolated cases: a worker imports them by name.


def imported(_builds: object) -> set[str]:
    """Return the names of the modules that describing so many candidates has imported."""
    return set(sys.modules)


def times_run(module: str, _builds: object) -> int:
    """Return how often a module runs when it is imported first, as C code imports it."""
    place = f"{module.replace('.', '/')}/__init__.py"
    ran: list[str] = []

    def note(event: str, given: tuple[Any, ...]) -> None:
        if event == "exec" and given[0].co_filename.endswith(place):
            ran.append(event)

    sys.addaudithook(note)
    importlib.import_module(module)
    return len(ran)


def build_right() -> Call:
    return lambda: RIGHT


def build_tuned(*, offset: int = 1) -> Call:
    return lambda: RIGHT - 7 + offset


def find_offset() -> dict[str, int]:
    return {"offset": 7}


def build_that_fails() -> Call:
    raise FileNotFoundError("no weights in /somewhere/private/model.bin")


def build_that_dies() -> Call:
    import os

    os._exit(3)


def build_large() -> Call:
    """Touch 64 MiB in every call."""
    return lambda: RIGHT if len(b"x" * (64 << 20)) else 0


def build_first_call_only() -> Call:
    """Fail in the second call."""
    calls: list[int] = []

    def call() -> int:
        calls.append(RIGHT)
        return RIGHT if len(calls) == 1 else 1 // 0

    return call


def build_slow(*, seconds: float) -> Call:
    def call() -> int:
        time.sleep(seconds)
        return RIGHT

    return call


def build_spinning() -> Call:
    """Leave a thread that never rests, as a pool that waits by spinning does."""

    def spin() -> None:
        while True:
            pass

    threading.Thread(target=spin, daemon=True).start()
    return lambda: RIGHT
