"""Brings each step its batches, made ahead by threads, from any step on."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.objectives.objective import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from encoder_engine.data.loader import Loader, Position, Turn
    from encoder_engine.objectives.objective import Inputs, Objective
    from encoder_engine.training.world import World

__all__ = ["Feed", "Meal"]

# Steps whose batches are made ahead.
AHEAD = 2


class Meal(NamedTuple):
    """A step's micro-batches of this process, and the position behind those of all.

    Every process has as many: the last one of some is there to be computed along, and counts for
    nothing: of the ``inputs`` only the first ``num_counted`` do.
    """

    inputs: list[Inputs]
    num_counted: int
    behind: Position


class Feed:
    """Steps' batches, with what the objectives hide in them."""

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

    def meals(
        self, start: int, stop: int, position: Position, count: Callable[[int], int]
    ) -> Iterator[Meal]:
        """Yield the meals of steps from ``start`` on; ``count(step)``: its micro-batches."""
        plans = self._plans(start, stop, position, count)
        if self._workers == 0:
            for turns, counted, behind in plans:
                yield Meal([self._make(turn) for turn in turns], counted, behind)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            ahead: deque[tuple[list[Future[Inputs]], int, Position]] = deque()
            try:
                for turns, counted, behind in plans:
                    ahead.append(([pool.submit(self._make, t) for t in turns], counted, behind))
                    if len(ahead) > AHEAD:
                        yield _served(*ahead.popleft())
                while ahead:
                    yield _served(*ahead.popleft())
            finally:
                for futures, _, _ in ahead:
                    for future in futures:
                        future.cancel()

    def _plans(
        self, start: int, stop: int, position: Position, count: Callable[[int], int]
    ) -> Iterator[tuple[list[Turn], int, Position]]:
        stream = self._loader.turns(position)
        rank, size = self._world.rank, self._world.size
        for step in range(start, stop):
            turns = [next(stream) for _ in range(count(step))]
            mine = turns[rank::size]
            most = -(-len(turns) // size)
            filled = mine + turns[:1] * (most - len(mine))
            yield filled, len(mine), turns[-1].behind

    def _make(self, turn: Turn) -> Inputs:
        return prepare(self._loader.batch(turn), self._objectives, seed=self._seed)


def _served(futures: list[Future[Inputs]], counted: int, behind: Position) -> Meal:
    return Meal([future.result() for future in futures], counted, behind)
