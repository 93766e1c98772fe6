"""Yields the micro-batches of each fine-tuning step.

How it works: an item is a tokenized row of the training files, or a window of a long one. Epoch e
visits the N items in the order of ``torch.randperm(N)`` with the seed 1000 * seed + e. A step takes
the next ``examples`` items of this order; the last step of an epoch may have fewer. The items of a
step are packed, in order, into micro-batches of at most ``micro_tokens`` tokens and, with several
processes, at most an equal share of the step's tokens; an item of more is a micro-batch alone. Rank
r of R takes micro-batches r, r + R, ...; a process with fewer repeats the step's first one. The
batches are a function of the step number: resuming needs no saved state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.data.loader import Position
from encoder_engine.training.course import StepBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from encoder_engine.finetuning.data import TaskData
    from encoder_engine.finetuning.recipe import StepRecipe
    from encoder_engine.tasks.items import Items
    from encoder_engine.training.world import World

    Integers = npt.NDArray[np.int64]

__all__ = ["ItemStream"]

# Seeds of runs lie this far apart, so that the epochs of two runs have different orders.
SEED_STRIDE = 1000


class ItemStream:
    """Yields the micro-batches of this process, training step after training step.

    ``items``: a function that returns the training items of ``data``, with the outputs of a frozen
    encoder if these are cached; called at the first step.
    """

    def __init__(
        self,
        data: TaskData,
        items: Callable[[], Items],
        recipe: StepRecipe,
        world: World,
        *,
        seed: int,
    ) -> None:
        self._data, self._recipe, self._world, self._seed = data, recipe, world, seed
        self._items, self._num_tokens = items, data.train_items.num_tokens

    @property
    def epoch_steps(self) -> int:
        """The number of training steps per epoch."""
        return -(-len(self._data.train_items) // self._recipe.examples)

    def steps(
        self, start: int, stop: int, position: Position, count: Callable[[int], int]
    ) -> Iterator[StepBatches]:
        """Yield this process's micro-batches of each step from ``start`` to ``stop - 1``.

        ``position`` and ``count`` are not used: the batches follow from the step's number.
        """
        del position, count
        order, ordered_epoch = np.zeros(0, np.int64), -1
        for step in range(start, stop):
            epoch, place = divmod(step, self.epoch_steps)
            if epoch != ordered_epoch:
                order, ordered_epoch = self._order(epoch), epoch
            first = place * self._recipe.examples
            packed = self._pack(order[first : first + self._recipe.examples])
            mine = packed[self._world.rank :: self._world.size]
            most = -(-len(packed) // self._world.size)
            filled = mine + packed[:1] * (most - len(mine))
            task, items = self._data.task, self._items()
            inputs = [task.collate(items.take(numbers)) for numbers in filled]
            yield StepBatches(inputs, len(mine), Position())

    def _order(self, epoch: int) -> Integers:
        generator = torch.Generator().manual_seed(SEED_STRIDE * self._seed + epoch)
        order: Integers = torch.randperm(len(self._num_tokens), generator=generator).numpy()
        return order

    def _pack(self, numbers: Integers) -> list[Integers]:
        """Group a step's items, in order, into micro-batches of up to ``micro_tokens`` tokens.

        ``numbers``: the indices of the items. With several processes the limit is at most an equal
        share of the step's tokens. An item above the limit is a micro-batch alone.
        """
        lengths = self._num_tokens[numbers]
        budget = self._recipe.micro_tokens
        if self._world.size > 1:
            budget = min(budget, -(-int(lengths.sum()) // self._world.size))
        cuts, filled = [], 0
        for place, length in enumerate(lengths.tolist()):
            if filled and filled + length > budget:
                cuts.append(place)
                filled = 0
            filled += length
        return np.split(numbers, cuts)
