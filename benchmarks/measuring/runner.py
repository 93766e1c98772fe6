"""Runs one candidate in the present process: builds it, and times it on request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from benchmarks.measuring.case import Work
from benchmarks.measuring.memory import Peak, call_peak, out_of_memory
from benchmarks.measuring.timing import Sample, calls_per_sample, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import Call, Candidate, Settings

Result = TypeVar("Result")


class CandidateError(Exception):
    """A candidate could not be built or did not finish; the message is its own, without paths."""


class Runner(Protocol):
    """A built candidate. Every method except :meth:`close` may raise :class:`CandidateError`."""

    def warm_up(self) -> Any:
        """Call the candidate and return its output; learn how many calls make a sample."""

    def sample(self) -> Sample:
        """Time the calls of one round."""

    def peak(self) -> Peak | None:
        """Return the memory that the candidate needed; None where that is unknown."""

    def close(self) -> None:
        """Free the candidate."""


# What another candidate's call left behind took the next one 14 ms.
LONG_MS = 500.0


class LocalRunner:
    """A candidate in this process.

    ``shared``: other candidates run here too, and leave caches and heap in another state.
    ``host_time``: see :class:`~benchmarks.measuring.case.Case`.
    """

    def __init__(
        self,
        candidate: Candidate,
        settings: Settings,
        device: str,
        *,
        single: bool = False,
        shared: bool = False,
        host_time: bool = False,
    ) -> None:
        self._device, self._single, self._shared = device, single, shared
        self._clock = "cpu" if host_time else device
        self._untimed_first = single
        self._num_calls = 1
        built = _attempt(lambda: candidate.build(**settings))
        work = built if isinstance(built, Work) else Work(call=built, answer=built)
        self._call: Call = work.call
        self._answer: Call = work.answer

    def warm_up(self) -> Any:
        """Call more than once: only the first call pays for initialisation."""
        output = self.answer()
        if self._answer is not self._call:
            _attempt(self._call)
        once = _attempt(lambda: sample(self._call, 1, self._clock))
        if not self._single:
            self._num_calls = calls_per_sample(once.wall_ms / 1e3, self._clock)
            # Many calls, or a long one, hide what another candidate's left behind.
            is_short = self._num_calls == 1 and once.wall_ms < LONG_MS
            self._untimed_first = self._shared and is_short
        return output

    def answer(self) -> Any:
        """Return the output that the gate judges."""
        return _attempt(self._answer)

    def sample(self) -> Sample:
        if self._untimed_first:
            _attempt(self._call)
        return _attempt(lambda: sample(self._call, self._num_calls, self._clock))

    def peak(self) -> Peak | None:
        return _attempt(lambda: call_peak(self._call, self._device))

    def close(self) -> None:
        del self._call, self._answer


def _attempt(function: Callable[[], Result]) -> Result:
    """Call a function; any exception becomes a :class:`CandidateError`, so that others go on."""
    try:
        return function()
    except Exception as error:
        raise CandidateError(describe(error)) from error


def describe(error: BaseException) -> str:
    """Describe an error in one line for the results: file names, but no folders."""
    spent = out_of_memory(error)
    if spent is not None:
        return spent
    message = re.sub(r"(?:/[\w.+-]+)+/", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {message[:300]}" if message else type(error).__name__
