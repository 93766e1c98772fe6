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

__all__ = ["Loader", "Position", "Turn"]


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far all processes together have come: the next batch of which window of which epoch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Turn(NamedTuple):
    """One batch: its sequences, their places in the epoch's order, and the position behind it."""

    epoch: int
    numbers: Numbers
    places: Numbers
    behind: Position


@dataclass(frozen=True, kw_only=True, eq=False)
class Loader:
    """Batches of at most ``batch_tokens`` tokens, special ones included, epoch after epoch.

    There is one stream of them, however many processes read it: each takes those that are its own.
    ``alpha``: how strongly small languages are favoured, see :func:`epoch_order`; None: as the text
    is. Raises :class:`ConfigError` for a sequence longer than a batch.
    """

    samples: Samples | Pairs
    batch_tokens: int
    seed: int
    alpha: float | None = None

    def __post_init__(self) -> None:
        longest = int(self.samples.lengths.max(initial=0))
        if longest > self.batch_tokens:
            raise ConfigError(
                f"a sequence has {longest} tokens, a batch takes {self.batch_tokens}; raise "
                f"batch.micro_tokens to at least {longest}, or lower data.max_length"
            )

    def batches(self, start: Position | None = None) -> Iterator[tuple[CleanBatch, Position]]:
        """Yield every batch from a position on, without end, with the position behind it."""
        for turn in self.turns(start):
            yield self.batch(turn), turn.behind

    def batch(self, turn: Turn) -> CleanBatch:
        """Read what a turn names; in any thread, in any order."""
        return self.samples.batch(turn.numbers, places=turn.places, epoch=turn.epoch)

    def turns(self, start: Position | None = None) -> Iterator[Turn]:
        """Say what is in each batch from a position on, without reading any of it."""
        start = start or Position()
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
                    yield Turn(start.epoch, order[places], places, behind)
            start = Position(epoch=start.epoch + 1)
