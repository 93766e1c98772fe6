"""An endless stream of batches of unmasked sequences that can start at any position.

How it works: an epoch's sequences are shuffled (:func:`epoch_order`), cut into windows of 256
batches and packed window by window (:func:`pack_windows`). A :class:`Slice` names one batch without
reading it, so that threads read batches in any order. A :class:`Position` is three numbers: epoch,
window, batch. Resuming shuffles the epoch again and packs one window; nothing before it is packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from encoder_engine.data.order import epoch_order, pack_windows
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from encoder_engine.data.pairs import Pairs
    from encoder_engine.data.samples import Samples
    from encoder_engine.packing.clean import CleanBatch

    Numbers = npt.NDArray[np.int64]

__all__ = ["Loader", "Position", "Slice"]


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a stream of batches goes on: epoch, window, and the next batch's index in the window.

    It is the same for all processes.
    """

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Slice(NamedTuple):
    """One batch of the stream, before its tokens are read.

    ``numbers``: the indices of the sequences, int64 [B].
    ``places``: their indices in the epoch's order, int64 [B].
    ``next_position``: the position after this batch.
    """

    epoch: int
    numbers: Numbers
    places: Numbers
    next_position: Position


@dataclass(frozen=True, kw_only=True, eq=False)
class Loader:
    """Yields batches of at most ``batch_tokens`` tokens, special ones included, epoch after epoch.

    The stream is the same for any number of processes; each process takes its own batches.
    ``alpha``: the exponent by which languages are sampled, see :func:`epoch_order`; None: in
    proportion to their text. Raises :class:`ConfigError` for a sequence longer than a batch.
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
        """Yield every batch from a position on, endlessly, with the position after each batch."""
        for slice_ in self.slices(start):
            yield self.batch(slice_), slice_.next_position

    def batch(self, slice_: Slice) -> CleanBatch:
        """Read the batch of a slice; threads may call this at the same time, in any order."""
        return self.samples.batch(slice_.numbers, places=slice_.places, epoch=slice_.epoch)

    def slices(self, start: Position | None = None) -> Iterator[Slice]:
        """Yield the slice of each batch from a position on, without reading the tokens."""
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
                    next_position = Position(epoch=start.epoch, window=window, batch=batch + 1)
                    yield Slice(start.epoch, order[places], places, next_position)
            start = Position(epoch=start.epoch + 1)
