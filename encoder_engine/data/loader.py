"""Clean batches without end, from any place on: the same ones whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.data.order import epoch_order, pack_windows
from encoder_engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from encoder_engine.data.pairs import Pairs
    from encoder_engine.data.samples import Samples
    from encoder_engine.packing.clean import CleanBatch

    Numbers = npt.NDArray[np.int64]

__all__ = ["Loader", "Position"]


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far all ranks together have come: the next batch of which window of which epoch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class _Turn(NamedTuple):
    """One batch: its sequences, their places in the epoch's order, and the position behind it."""

    epoch: int
    numbers: Numbers
    places: Numbers
    behind: Position


@dataclass(frozen=True, kw_only=True, eq=False)
class Loader:
    """Batches of at most ``batch_tokens`` tokens, special ones included, epoch after epoch.

    The stream of all ranks is one and the same: rank r of R takes every R-th batch, so that another
    number of ranks goes on with the same text. ``alpha``: how strongly small languages are
    favoured, see :func:`epoch_order`; None: as the text is.

    Raises :class:`ConfigError` for a rank that is none, or a sequence longer than a batch.
    """

    samples: Samples | Pairs
    batch_tokens: int
    seed: int
    rank: int = 0
    num_ranks: int = 1
    alpha: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.num_ranks:
            raise ConfigError(f"rank is {self.rank}, there are {self.num_ranks} ranks")
        longest = int(self.samples.lengths.max(initial=0))
        if longest > self.batch_tokens:
            raise ConfigError(
                f"a sequence has {longest} tokens, a batch takes {self.batch_tokens}; cut the "
                "corpus shorter or allow more"
            )

    def batches(self, start: Position | None = None) -> Iterator[tuple[CleanBatch, Position]]:
        """Yield this rank's batches from a position on, without end.

        Each comes with the position to go on from once every rank has had its batch of that turn.
        """
        stream = self._stream(start or Position())
        while True:
            turns = [next(stream) for _ in range(self.num_ranks)]
            mine = turns[self.rank]
            batch = self.samples.batch(mine.numbers, places=mine.places, epoch=mine.epoch)
            yield batch, turns[-1].behind

    def _stream(self, start: Position) -> Iterator[_Turn]:
        """Yield every batch of all ranks."""
        while True:
            order = epoch_order(
                self.samples.languages, seed=self.seed, epoch=start.epoch, alpha=self.alpha
            )
            windows = pack_windows(
                self.samples.lengths[order],
                self.batch_tokens,
                seed=self.seed,
                epoch=start.epoch,
                first_window=start.window,
            )
            for window, batches in enumerate(windows, start=start.window):
                first = start.batch if window == start.window else 0
                for batch in range(first, len(batches)):
                    places = batches[batch]
                    behind = Position(epoch=start.epoch, window=window, batch=batch + 1)
                    yield _Turn(start.epoch, order[places], places, behind)
            start = Position(epoch=start.epoch + 1)
