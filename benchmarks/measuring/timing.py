"""Times a call: wall and CPU time on the host, events on a CUDA device."""

from __future__ import annotations

import gc
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring.case import Call

# A sample is long enough for the clock and the interpreter not to matter, yet one call if slow.
SAMPLE_SECONDS = 0.02
MAX_CALLS = 1000
# Written between calls on a GPU so that none finds its inputs in the cache: over twice any L2.
CACHE_BYTES = 256 << 20
# Calls that make up a sample on a GPU, where events tell the time of each.
MAX_GPU_CALLS = 20
# A GPU waits for so many of its cycles, 1 to 16 ms, while the host launches what is timed.
LEAST_WAIT, MOST_WAIT = 1 << 21, 1 << 25


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One round of one candidate, per call. ``cpu_ms``: all threads of the process together."""

    wall_ms: float
    cpu_ms: float
    num_calls: int = 1


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """Percentiles of the samples of a candidate, in the samples' unit."""

    p20: float
    p50: float
    p80: float
    p99: float


def percentiles(samples: Sequence[float]) -> Percentiles:
    """Return percentiles of the samples, interpolated linearly, as NumPy does."""
    # The standard library wants two samples at least: one, said twice, is all of its percentiles.
    several = samples if len(samples) > 1 else [*samples, *samples]
    cuts = statistics.quantiles(several, n=100, method="inclusive")
    p20, p50, p80, p99 = (cuts[percent - 1] for percent in (20, 50, 80, 99))
    return Percentiles(p20=float(p20), p50=float(p50), p80=float(p80), p99=float(p99))


def calls_per_sample(seconds_of_one: float, device: str = "cpu") -> int:
    """Return how many calls to time as one sample, given the approximate time of one."""
    most = MAX_GPU_CALLS if device == "cuda" else MAX_CALLS
    return max(1, min(most, round(SAMPLE_SECONDS / max(seconds_of_one, 1e-9))))


def sample(call: Call, num_calls: int, device: str) -> Sample:
    """Time ``num_calls`` calls in a row."""
    with _no_garbage_collection():
        return (_on_cuda if device == "cuda" else _on_host)(call, num_calls)


def _on_host(call: Call, num_calls: int) -> Sample:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(num_calls):
        call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    per_call = 1e3 / num_calls
    return Sample(wall_ms=wall * per_call, cpu_ms=cpu * per_call, num_calls=num_calls)


def _on_cuda(call: Call, num_calls: int) -> Sample:
    """Time each call by CUDA events, after flushing the cache; return the calls' median.

    The GPU waits before the first event until the host has launched the whole call. Otherwise a
    kernel of 20 us, which takes the host 70 us to launch, would read as 70 us.
    """
    import torch

    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    torch.cuda.synchronize()
    cpu = 0.0
    wait = _waits.get(call, LEAST_WAIT)
    times_ms: list[float] = []
    while len(times_ms) < num_calls:
        start, stop = _event(torch), _event(torch)
        cache.zero_()
        torch.cuda._sleep(wait)  # type: ignore[no-untyped-call]
        start.record()
        began = time.process_time()
        call()
        launching = time.process_time() - began
        began_early = start.query()
        stop.record()
        stop.synchronize()
        if began_early and wait < MOST_WAIT:
            wait *= 2
            continue
        times_ms.append(start.elapsed_time(stop))
        cpu += launching
    _waits[call] = wait
    wall_ms = statistics.median(times_ms)
    return Sample(wall_ms=wall_ms, cpu_ms=1e3 * cpu / num_calls, num_calls=num_calls)


def _event(torch: Any) -> Any:
    return torch.cuda.Event(enable_timing=True)


# The wait that hid the launches of a call, for its next sample.
_waits: WeakKeyDictionary[Call, int] = WeakKeyDictionary()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
