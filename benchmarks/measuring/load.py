"""Measures the CPU time of other processes, so that disturbed results are marked."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A moment, and the CPU time that all processes of the machine had used up to it."""

    wall_seconds: float
    busy_seconds: float


def snapshot() -> Snapshot | None:
    """Read the machine's counters; None where the system has none."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    # cpu user nice system idle iowait irq softirq steal: in ticks, summed over the cores.
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    ticks = user + nice + system + irq + softirq + steal
    return Snapshot(wall_seconds=time.perf_counter(), busy_seconds=ticks / os.sysconf("SC_CLK_TCK"))


def other_cores(before: Snapshot | None, own_seconds: float) -> float | None:
    """Return the mean number of cores that other processes used since ``before``."""
    after = snapshot()
    if before is None or after is None:
        return None
    others = after.busy_seconds - before.busy_seconds - own_seconds
    return max(0.0, others / (after.wall_seconds - before.wall_seconds))
