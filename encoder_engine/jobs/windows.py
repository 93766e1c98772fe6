"""Divides the rows of all inputs into shards, and a shard into windows of consecutive rows."""

from __future__ import annotations

from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.kinds.windows import WINDOW_CHARACTERS, WINDOW_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.inputs.identifiers import Identifier
    from encoder_engine.inputs.rows import Row

# A stop loses one window, and progress is reported after each: about 4 seconds of work.
_WINDOW_SECONDS = 4.0
_FIRST_TEXTS = 64
_LEAST_TEXTS = 16


@dataclass(frozen=True, kw_only=True)
class TextWindow:
    """Consecutive rows of one shard; ``first_row`` counts from the first row of the inputs.

    ``texts``: the text of each row, or both texts of a pair.
    ``sources``: the files of the rows.
    ``kept``: the values of each row in the columns that the output keeps.
    """

    shard: int
    first_row: int
    texts: list[Any]
    identifiers: list[Identifier | None]
    sources: list[str]
    kept: list[tuple[object, ...]]

    @property
    def present_identifiers(self) -> list[Identifier]:
        """The ids of the rows; [] if no id column was named."""
        return [identifier for identifier in self.identifiers if identifier is not None]


class WindowSize:
    """The number of rows of a window: 4,096, or fewer where windows take long.

    ``timed``: start with 64 rows, double while a window takes less than 2 seconds, and halve, down
    to 16 rows, after a window of more than 8 seconds.
    """

    def __init__(self, *, timed: bool) -> None:
        self.num_texts = _FIRST_TEXTS if timed else WINDOW_TEXTS
        self._timed = timed

    def observe(self, num_texts: int, seconds: float) -> None:
        """Adapt the number of rows to the seconds that the results of a window took."""
        if not self._timed or num_texts < self.num_texts:
            return
        if seconds < _WINDOW_SECONDS / 2:
            self.num_texts = min(2 * self.num_texts, WINDOW_TEXTS)
        elif seconds > 2 * _WINDOW_SECONDS:
            self.num_texts = max(self.num_texts // 2, _LEAST_TEXTS)


def shard_windows(
    rows: Iterator[Row],
    shard_rows: int | None,
    *,
    recorded: Sequence[int] = (),
    size: WindowSize | None = None,
) -> Iterator[TextWindow]:
    """Cut rows into shards of ``shard_rows`` (None: one shard), and shards into windows.

    ``recorded``: the number of rows of each shard of earlier runs, where they differ. No window
    spans two shards, so a shard's content depends only on its own rows.
    """
    first_row = 0
    for shard, num_rows in enumerate(chain(recorded, repeat(shard_rows))):
        empty = True
        for window in _windows(islice(rows, num_rows), size or WindowSize(timed=False)):
            yield TextWindow(
                shard=shard,
                first_row=first_row,
                texts=[row.content for row in window],
                identifiers=[row.identifier for row in window],
                sources=[row.source for row in window],
                kept=[row.kept for row in window],
            )
            first_row += len(window)
            empty = False
        if empty or num_rows is None:
            return


def _windows(rows: Iterator[Row], size: WindowSize) -> Iterator[list[Row]]:
    window: list[Row] = []
    characters = 0
    for row in rows:
        window.append(row)
        characters += len(row.text) + len(row.pair or "")
        if len(window) >= size.num_texts or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window
