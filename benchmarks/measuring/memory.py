"""Measures memory: of a whole process, or of one call in a shared process.

The kernel keeps each process's high-water mark of resident memory (VmHWM in /proc/self/status) and,
since Linux 4.0, lowers it to the present size when 5 is written to /proc/self/clear_refs.
"""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.case import Call

MIB = 1 << 20
PeakOf = Literal["process", "call", "first call"]


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The most memory held at once, and by what.

    ``process``: everything resident in the candidate's own process since its start, libraries and
    weights included. ``call``: what one call added, its output included and its inputs not; on a
    CUDA device that is counted by torch's allocator. ``first call``: what the first call of a new
    process left resident: what it loaded, its caches, its output.
    """

    mib: float
    of: PeakOf


def process_peak(process: int | Literal["self"] = "self") -> Peak | None:
    """Return a process's peak resident memory; None where the system does not report it."""
    kib = _status("VmHWM", process)
    return None if kib is None else Peak(mib=kib / 1024, of="process")


def tree_peak() -> Peak | None:
    """Return the sum of the peaks of this process and of those it started, such as a server.

    None: the system does not report them.
    """
    own = process_peak()
    if own is None:
        return None
    started = (process_peak(process) for process in _started("self"))
    return Peak(mib=own.mib + sum(peak.mib for peak in started if peak is not None), of="process")


def _started(process: int | Literal["self"]) -> Iterator[int]:
    """Yield the ids of the processes that a process started, and of those that these started."""
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found = [int(number) for number in path.read_text("ascii").split()]
        except OSError:
            continue
        for number in found:
            yield number
            yield from _started(number)


def resident_kib() -> int | None:
    """Return the resident memory of this process; None where the system does not report it."""
    return _status("VmRSS")


def call_peak(call: Call, device: str) -> Peak | None:
    """Call once more and return the memory that the call added; None where that is not possible."""
    return _cuda_peak(call) if device == "cuda" else _host_call_peak(call)


def out_of_memory(error: BaseException) -> str | None:
    """Describe an out-of-memory error in one sentence; return None for any other error."""
    # torch's own class, which may not be imported, and the words of its CPU allocator and of C++.
    words = ("can't allocate memory", "std::bad_alloc")
    spent = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    spent |= any(of in str(error) for of in words)
    return "out of memory" if spent else None


def _cuda_peak(call: Call) -> Peak:
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return Peak(mib=(torch.cuda.max_memory_allocated() - before) / MIB, of="call")


def _host_call_peak(call: Call) -> Peak | None:
    gc.collect()
    _return_free_memory()
    if not _reset_high_water_mark():
        return None
    before = _status("VmRSS")
    call()
    after = _status("VmHWM")
    if before is None or after is None:
        return None
    return Peak(mib=max(after - before, 0) / 1024, of="call")


def _return_free_memory() -> None:
    """Have malloc return freed memory to the system.

    A call that reuses freed memory would otherwise seem to need less than it does.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(field: str, process: int | Literal["self"] = "self") -> int | None:
    """Read a field of /proc/PID/status, in KiB; None: there is no such file or field."""
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    return None
