"""The micro-batches of each training step, read and masked ahead of time by threads.

How it works: the loader lists the micro-batches in one order, for any number of processes. Of the N
micro-batches of a step, rank r of R takes numbers r, r + R, ...; a process that would get fewer
than ceil(N / R) repeats the step's first one, because DDP and FSDP run in step. Threads read and
mask the batches of the next 2 steps ahead of time. No random number depends on threads or ranks.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from encoder_engine.objectives.objective import prepare
from encoder_engine.training.course import StepBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from encoder_engine.data.loader import Loader, Position, Slice
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.objectives.objective import Objective
    from encoder_engine.training.world import World

__all__ = ["BatchStream"]

# Steps whose batches are prepared ahead.
AHEAD = 2


class BatchStream:
    """Yields this process's micro-batches, step after step, masked by the training objectives."""

    def __init__(
        self,
        loader: Loader,
        objectives: Sequence[Objective],
        world: World,
        *,
        seed: int,
        workers: int,
    ) -> None:
        self._loader, self._objectives, self._world = loader, objectives, world
        self._seed, self._workers = seed, workers

    def steps(
        self, start: int, stop: int, position: Position, count: Callable[[int], int]
    ) -> Iterator[StepBatches]:
        """Yield this process's micro-batches of each training step from ``start`` to ``stop - 1``.

        ``position``: where the data of step ``start`` begin.
        ``count``: a function from a step to its number of micro-batches, over all processes.
        """
        steps = self._slices(start, stop, position, count)
        if self._workers == 0:
            for slices, counted, next_position in steps:
                yield StepBatches([self._make(slice_) for slice_ in slices], counted, next_position)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            ahead: deque[tuple[list[Future[Inputs]], int, Position]] = deque()
            try:
                for slices, counted, next_position in steps:
                    futures = [pool.submit(self._make, slice_) for slice_ in slices]
                    ahead.append((futures, counted, next_position))
                    if len(ahead) > AHEAD:
                        yield _step_batches(*ahead.popleft())
                while ahead:
                    yield _step_batches(*ahead.popleft())
            finally:
                for futures, _, _ in ahead:
                    for future in futures:
                        future.cancel()

    def _slices(
        self, start: int, stop: int, position: Position, count: Callable[[int], int]
    ) -> Iterator[tuple[list[Slice], int, Position]]:
        """Yield, for each step, the fields of :class:`StepBatches` with slices instead of inputs.

        A slice names the sequences of a micro-batch, before they are read and masked.
        """
        stream = self._loader.slices(position)
        rank, size = self._world.rank, self._world.size
        for step in range(start, stop):
            slices = [next(stream) for _ in range(count(step))]
            mine = slices[rank::size]
            most = -(-len(slices) // size)
            filled = mine + slices[:1] * (most - len(mine))
            yield filled, len(mine), slices[-1].next_position

    def _make(self, slice_: Slice) -> Inputs:
        return prepare(self._loader.batch(slice_), self._objectives, seed=self._seed)


def _step_batches(
    futures: list[Future[Inputs]], counted: int, next_position: Position
) -> StepBatches:
    """Wait until threads have made a step's micro-batches, and return them."""
    return StepBatches([future.result() for future in futures], counted, next_position)
