"""Measures the CPU time of other processes, by which disturbed results are marked."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

import psutil


class Snapshot(NamedTuple):
    """A moment, and the CPU time, in seconds, that other processes had used up to it."""

    wall_seconds: float
    others_seconds: float


def snapshot() -> Snapshot | None:
    """Read the CPU time of other processes until now; None where the system does not tell it."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    # cpu user nice system idle iowait irq softirq steal: in ticks, summed over the cores.
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return Snapshot(time.perf_counter(), busy - own_seconds())


def own_seconds() -> float:
    """Return the CPU time of this process and all that it started, running or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = time.process_time() + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        used += times.user + times.system
    return float(used)


def other_cores(before: Snapshot | None) -> float | None:
    """Return the mean number of cores that other processes used since ``before``; None: unknown."""
    after = snapshot()
    if before is None or after is None:
        return None
    others = after.others_seconds - before.others_seconds
    return max(0.0, others / (after.wall_seconds - before.wall_seconds))
