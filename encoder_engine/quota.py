"""Reads the number of cores that a container may use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_quota"]

# The CPU quota of a container, in cgroups of version 2 and 1.
QUOTA = Path("/sys/fs/cgroup/cpu.max")
OLD_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
OLD_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def cpu_quota() -> float | None:
    """Return the number of cores in the container's quota; None: there is no quota."""
    for paths in ((QUOTA,), (OLD_QUOTA, OLD_PERIOD)):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = " ".join(path.read_text("ascii") for path in paths).split()
            return None if quota in ("max", "-1") else int(quota) / int(period)
    return None
