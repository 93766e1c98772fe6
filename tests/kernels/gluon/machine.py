"""A Hopper multiprocessor, as far as a kernel of specialised warps can go wrong on it.

How it works: each partition of a kernel's warps is a thread, but one thread runs at a time. At each
access to what partitions share (barriers, shared memory, TMA, wgmma) it hands over, and a seed
decides who goes on: a partition that does not wait, or a copy by TMA that is under way. Each has a
speed, drawn too, so that some seeds let one fall far behind. If nobody can go on, it is a deadlock.

Shared memory holds NaN until it is written and while a copy into it is under way. What the memory
model leaves undefined is an error at once, whatever the values: memory that is read or written
while a copy or a product uses it, and memory that was stored to, or loaded from, and is given to
TMA or wgmma without a fence.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Floats = npt.NDArray[np.float32]
# Shared memory of a program on Hopper.
SHARED_BYTES = 227 * 1024


class SimulationError(AssertionError):
    """A deadlock, or an access that the memory model leaves undefined."""


class _Ended(BaseException):
    """Ends a partition's thread after another one failed."""


@dataclass(eq=False)
class Buffer:
    """A block of shared memory, and who is at it."""

    values: Floats
    copies: int = 0  # by TMA, under way
    products: int = 0  # that read it, under way
    # Who stored or loaded and has not fenced since.
    unfenced: set[Partition] = field(default_factory=set)

    def check(self, doing: str, *, writes: bool, asynchronous: bool) -> None:
        """Raise where ``doing`` something now is undefined."""
        if self.copies:
            raise SimulationError(f"{doing}, and a copy into it is under way")
        if self.products and writes:
            raise SimulationError(f"{doing}, and a product that reads it is under way")
        if self.unfenced and asynchronous:
            names = " and ".join(sorted(partition.name for partition in self.unfenced))
            raise SimulationError(f"{doing}, and {names} has not fenced")


@dataclass(eq=False)
class Barrier:
    """An mbarrier: a phase ends when nobody is awaited any more, neither arrivals nor bytes."""

    count: int
    pending: int
    bytes_awaited: int = 0
    phases_ended: int = 0

    def arrive(self, count: int = 1) -> None:
        """Arrive so many times."""
        if count > self.pending:
            raise SimulationError(f"{count} arrive at a barrier that awaits {self.pending}")
        self.pending -= count
        self._end()

    def receive(self, num_bytes: int) -> None:
        """Count bytes that a copy has written."""
        self.bytes_awaited -= num_bytes
        if self.bytes_awaited < 0:
            raise SimulationError("a copy brings more bytes than its barrier expects")
        self._end()

    def _end(self) -> None:
        if self.pending == 0 and self.bytes_awaited == 0:
            self.phases_ended += 1
            self.pending = self.count

    def has_ended(self, parity: int) -> bool:
        """Return what a wait for the phase of this parity sees."""
        return self.phases_ended % 2 != parity


@dataclass(eq=False)
class Product:
    """An asynchronous product, of which nothing is known before the wait for it."""

    compute: Callable[[], Floats]
    buffers: tuple[Buffer, ...]
    result: Floats | None = None

    def end(self) -> None:
        """Compute it, from what its operands hold now."""
        self.result = self.compute()
        for buffer in self.buffers:
            buffer.products -= 1


@dataclass(eq=False)
class Partition:
    """Warps with a part of their own."""

    name: str
    speed: float
    may_run: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    awaited: Callable[[], bool] | None = None
    awaiting: str = ""
    under_way: list[Product] = field(default_factory=list)
    ended: bool = False


class Machine:
    """Runs the partitions of one program in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)
        self._partitions: list[Partition] = []
        self._copies: list[Callable[[], None]] = []
        self._copy_speed = self._speed()
        self._handed_back = threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._local = threading.local()
        self._alone = Partition(name="all warps", speed=1.0)
        self.buffers: list[Buffer] = []
        self.shared_bytes = 0

    def _speed(self) -> float:
        return self._draws.choice((0.02, 0.2, 1.0))

    @property
    def partition(self) -> Partition:
        """The partition that runs; before and after the specialised part, all warps."""
        found: Partition = getattr(self._local, "partition", self._alone)
        return found

    def allocate(self, values: Floats, num_bytes: int) -> Buffer:
        """Give out shared memory."""
        self.shared_bytes += num_bytes
        if self.shared_bytes > SHARED_BYTES:
            raise SimulationError(f"{self.shared_bytes} bytes of shared memory of {SHARED_BYTES}")
        self.buffers.append(Buffer(values))
        return self.buffers[-1]

    def step(self, until: Callable[[], bool] | None = None, what: str = "") -> None:
        """Hand over to whoever is drawn, and go on when drawn and ``until`` holds."""
        partition = self.partition
        if partition is self._alone:
            if until is not None and not until():
                raise SimulationError(f"deadlock: all warps wait for {what}")
            return
        partition.awaited, partition.awaiting = until, what
        self._handed_back.release()
        partition.may_run.acquire()
        if self._failure is not None:
            raise _Ended

    def copy(self, complete: Callable[[], None]) -> None:
        """Leave a copy under way; it completes when drawn, in any order."""
        self._copies.append(complete)

    def run(self, parts: Sequence[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
        """Run each function with its arguments as a partition until all have returned."""
        threads = []
        for place, (function, arguments) in enumerate(parts):
            partition = Partition(f"{function.__name__} {place}", self._speed())
            self._partitions.append(partition)
            threads.append(threading.Thread(target=self._be, args=(partition, function, arguments)))
        for thread in threads:
            thread.start()
        for _ in threads:
            self._handed_back.acquire()
        try:
            while any(not partition.ended for partition in self._partitions):
                self._go_on()
            if self._copies:
                raise SimulationError("a copy is under way when the program ends")
        except BaseException as failure:
            self._failure = self._failure or failure
            raise
        finally:
            for partition in self._partitions:
                partition.may_run.release()
            for thread in threads:
                thread.join()

    def _go_on(self) -> None:
        able = [p for p in self._partitions if not p.ended and (p.awaited is None or p.awaited())]
        weights = [partition.speed for partition in able]
        if self._copies:
            weights.append(self._copy_speed)
        if not weights:
            waiting = "; ".join(f"{p.name}: {p.awaiting}" for p in self._partitions if not p.ended)
            raise SimulationError(f"deadlock: {waiting}")
        place = self._draws.choices(range(len(weights)), weights)[0]
        if place == len(able):
            self._copies.pop(self._draws.randrange(len(self._copies)))()
            return
        able[place].may_run.release()
        self._handed_back.acquire()
        if self._failure is not None:
            raise self._failure

    def _be(
        self, partition: Partition, function: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        self._local.partition = partition
        try:
            # Overflows and differences of infinities are the neighbours' rows.
            with np.errstate(all="ignore"):
                self.step()
                function(*arguments)
                if partition.under_way:
                    raise SimulationError(f"{partition.name} ends with products under way")
        except _Ended:
            return
        except BaseException as failure:
            self._failure = failure
        partition.ended = True
        self._handed_back.release()
