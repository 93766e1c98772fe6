"""Cutting the rows of all inputs into shards, and the rows of a shard into windows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from encoder_engine.embedding.batching import windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.embedding.rows import Identifier, Row


@dataclass(frozen=True, kw_only=True)
class TextWindow:
    """Consecutive rows of one shard; ``first_row`` counts from the first row of all."""

    shard: int
    first_row: int
    texts: list[str]
    identifiers: list[Identifier | None]

    @property
    def present_identifiers(self) -> list[Identifier]:
        """The ids; none where no column was named."""
        return [identifier for identifier in self.identifiers if identifier is not None]


def shard_windows(rows: Iterator[Row], shard_rows: int | None) -> Iterator[TextWindow]:
    """Cut rows into shards of ``shard_rows`` (None: one of all rows), and those into windows.

    A shard begins with a window of its own, so what it holds depends on nothing before it.
    """
    first_row = 0
    for shard in count():
        empty = True
        for window in windows(islice(rows, shard_rows), _num_characters):
            yield TextWindow(
                shard=shard,
                first_row=first_row,
                texts=[row.text for row in window],
                identifiers=[row.identifier for row in window],
            )
            first_row += len(window)
            empty = False
        if empty or shard_rows is None:
            return


def _num_characters(row: Row) -> int:
    return len(row.text)
