"""The outputs of a run: one file of vectors, or a folder of shards with a manifest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, Self

from encoder_engine.files import PendingFile, writing
from encoder_engine.jobs.kept_columns import KeptColumns
from encoder_engine.vectors.store import VectorStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from encoder_engine.errors import RowError
    from encoder_engine.inputs.rows import Row
    from encoder_engine.jobs.job import DatasetJob
    from encoder_engine.jobs.windows import TextWindow
    from encoder_engine.kinds.windows import EmbeddedWindow

_MOST_REASON_CHARACTERS = 500


class Output(Protocol):
    """Takes the results of a run, window by window, in order; a context manager."""

    @property
    def shard_rows(self) -> int | None:
        """The number of rows of every shard but the last.

        None: it varies, or there are no shards.
        """

    @property
    def recorded_rows(self) -> list[int]:
        """The number of rows of each shard of earlier runs; [] if ``shard_rows`` is fixed."""

    @property
    def skipped_path(self) -> Path:
        """The path of the file that lists skipped rows."""

    @property
    def num_kept_rows(self) -> int:
        """The number of rows that are kept if the run is stopped now."""

    @property
    def num_truncated_rows(self) -> int | None:
        """The number of truncated rows of the output; None: as many as this run counts."""

    def select(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Return those of the inputs' rows that are to be embedded."""

    def done(self, shard: int) -> bool:
        """Return whether a shard is finished, so that its rows need not be embedded."""

    def add(self, window: TextWindow, embedded: EmbeddedWindow | None) -> None:
        """Append a window of rows and its results; None for a window of a finished shard."""

    def complete(self, skipped: SkippedRows) -> None:
        """Finish the output, as no more windows follow."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class SkippedRows:
    """The list of skipped rows: ``file``, ``number`` (line or row, from 1) and ``reason`` of each.

    The list is published when the run is complete, and only where a row was skipped.
    """

    def __init__(self, path: Path) -> None:
        self.num_rows = 0
        self._path = path
        self._file: PendingFile | None = None

    def __call__(self, error: RowError) -> None:
        """Add a bad row to the list."""
        line = {"file": error.file, "number": error.number}
        entry = json.dumps({**line, "reason": error.reason[:_MOST_REASON_CHARACTERS]})
        if self._file is None:
            self._file = PendingFile(self._path, overwrite=True)
        with writing(self._path):
            self._file.stream.write(f"{entry}\n".encode("ascii"))
        self.num_rows += 1

    def publish(self) -> None:
        """Give the list its final name; if no row was skipped, remove an earlier run's list."""
        with writing(self._path):
            if self._file is None:
                self._path.unlink(missing_ok=True)
            else:
                self._file.publish()

    def discard(self) -> None:
        """Remove the unpublished list."""
        if self._file is not None:
            self._file.discard()


class SingleFile:
    """An :class:`Output` that writes all results into one file, which appears complete."""

    def __init__(self, job: DatasetJob) -> None:
        self._has_identifiers = job.options.id_column is not None
        self.skipped_path = job.skipped_path
        self._kept = KeptColumns(job.options.keep)
        self._store = VectorStore(
            job.output,
            id_column=job.options.id_column,
            overwrite=job.options.overwrite,
            kind=job.options.task,
        )

    shard_rows = None
    num_kept_rows = 0
    num_truncated_rows = None

    @property
    def recorded_rows(self) -> list[int]:
        """Return []: a single file has no earlier shards."""
        return []

    def select(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Return the rows to embed: all rows."""
        return rows

    def done(self, shard: int) -> bool:
        """Return False: a single file has no finished shards to resume after."""
        return shard < 0

    def add(self, window: TextWindow, embedded: EmbeddedWindow | None) -> None:
        """Append the results of a window (consecutive rows)."""
        assert embedded is not None
        names = window.present_identifiers if self._has_identifiers else ()
        kept = self._kept.arrays(window.kept, window.first_row)
        self._store.append(embedded.vectors, names, kept)

    def complete(self, skipped: SkippedRows) -> None:
        """Publish the list of skipped rows; the vectors follow on exit."""
        if self._store.num_rows:
            skipped.publish()

    def __enter__(self) -> Self:
        self._store.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._store.__exit__(*details)
