"""Cleans the rows of files into a new file; interrupted runs resume from a folder beside it.

How it works: ``_OUTPUT.partial/`` holds the lines written so far, the cleaner's state (digests,
shingles and vectors of the texts so far), and ``progress.json``: counts, the sizes of the files at
these counts, and a digest of the rows so far. Every few seconds, after a window, the files are
flushed to the disk, then ``progress.json`` is replaced. A run that finds the folder truncates the
files to the recorded sizes, restores the cleaner, compares the digest of the rows, and continues
with the next row. Its windows, and so its bytes, are those of an uninterrupted run. At the end the
files are renamed to their final names, and the folder is removed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import time
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.data.hygiene.cleaning import CleanCounts
from encoder_engine.data.row_files import json_line
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import OutputError, RowError
from encoder_engine.files import (
    check_target,
    move_into_place,
    partial_path,
    sync_directory,
    write_atomically,
    writing,
)
from encoder_engine.inputs.digest import RowsDigest
from encoder_engine.json_values import read_value
from encoder_engine.locks import LOCK_NAME
from encoder_engine.records import (
    Difference,
    describe_changes,
    locked_folder,
    note_resumed,
    refuse_changes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from encoder_engine.data.hygiene.cleaning import Cleaned, Cleaner
    from encoder_engine.inputs.records import Record

__all__ = ["CleanJob", "check_targets", "clean_rows"]

# Rows that are read, cleaned and written together.
WINDOW_ROWS = 2048
# Seconds between two records of progress, each of which waits for the disk some 0.1 s.
RECORD_SECONDS = 5.0
KEPT, DROPPED, MEMORY, PROGRESS = "kept.jsonl", "dropped.jsonl", "memory.bin", "progress.json"
_LENGTH_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class CleanJob:
    """The files of a cleaning run, and the settings that its output depends on.

    output: the .jsonl file of kept rows.
    dropped: the file that lists dropped rows; None: no file.
    column: the column of the texts.
    language_column: the column to write labelled texts' languages to; rows must not have it.
    begun: everything that the output depends on, as JSON values; a run resumes only with equal
    values.
    overwrite: replace files, and an interrupted run of other settings.
    """

    output: Path
    dropped: Path | None
    column: str
    begun: dict[str, Any]
    language_column: str = "language"
    overwrite: bool = False

    @property
    def folder(self) -> Path:
        """The temporary folder, which an interrupted run leaves behind."""
        return _folder(self.output)

    @property
    def targets(self) -> dict[str, Path]:
        """The files to write, by the names of their unfinished copies in the temporary folder."""
        dropped = {} if self.dropped is None else {DROPPED: self.dropped}
        return {KEPT: self.output, **dropped}


def check_targets(output: Path, dropped: Path | None, *, overwrite: bool) -> None:
    """Raise :class:`OutputError` where a new run cannot write its files.

    Files of an interrupted run are not checked: some may have their final names. They are checked
    when the run's record is read.
    """
    if not _folder(output).exists():
        _check(output, dropped, overwrite=overwrite)


def _folder(output: Path) -> Path:
    return partial_path(output)


def _check(output: Path, dropped: Path | None, *, overwrite: bool) -> None:
    for path in (output, dropped):
        if path is not None:
            check_target(path, overwrite=overwrite)


def clean_rows(
    records: Iterable[Record],
    cleaner: Cleaner,
    job: CleanJob,
    *,
    finish: Callable[[str], None],
    watch: Callable[[CleanCounts], None] = lambda _counts: None,
) -> None:
    """Clean rows and write them to a job's files; continue where an interrupted run stopped.

    records: all rows, from the first, also if a run is continued.
    cleaner: one that has read no text yet.
    finish: called with the SHA-256 of the kept rows once the files have their final names.
    watch: called after each window.

    Raises :class:`OutputError` for files that exist, :class:`ResumeError` for an interrupted run of
    other settings, :class:`LockedError` where another run is at work, and :class:`RowError` for a
    row that cannot be cleaned; then nothing is left to resume.
    """
    check_targets(job.output, job.dropped, overwrite=job.overwrite)
    with locked_folder(job.folder), writing(job.output):
        recorded = _begin(job)
        if recorded["sha256"] is None:
            try:
                recorded = _clean(records, cleaner, job, recorded, watch)
            except RowError:
                # The input has to be changed, so that no run can resume this one.
                shutil.rmtree(job.folder)
                raise
        cleaner.counts = CleanCounts.of_record(recorded["counts"])
        for name, target in job.targets.items():
            # A run killed here has published the files that are gone.
            if (job.folder / name).exists():
                move_into_place(job.folder / name, target, overwrite=job.overwrite)
        finish(recorded["sha256"])
        shutil.rmtree(job.folder)


def _begin(job: CleanJob) -> dict[str, Any]:
    """Return the progress record of an interrupted run, or write and return that of a new run."""
    path = job.folder / PROGRESS
    if path.exists():
        mend = f"; remove {job.folder} to begin anew"
        recorded = read_value(path, OutputError, mend=mend).object()
        changes = describe_changes(recorded["begun"], job.begun, _describe)
        if not changes:
            if recorded["sha256"] is None:
                _check(job.output, job.dropped, overwrite=job.overwrite)
            return recorded
        if not job.overwrite:
            advice = f"give the same ones, or remove {job.folder} to begin anew"
            refuse_changes(job.folder, changes, advice)
    elif any(p.name != LOCK_NAME and p.suffix != ".partial" for p in job.folder.iterdir()):
        raise OutputError(
            f"{job.folder} is not empty, and no cleaning was started in it; move it away"
        )
    _check(job.output, job.dropped, overwrite=job.overwrite)
    return _note(job, CleanCounts(), dict.fromkeys((*job.targets, MEMORY), 0), RowsDigest())


def _describe(change: Difference) -> str:
    if change.name == "inputs":
        return "the inputs are others, or were changed"
    if change.name == "model" or change.name.endswith(".fingerprint"):
        return "the model of semantic duplicates is another"
    name = change.name.removeprefix("settings.")
    if name.startswith("model."):
        name = f"the model's {name.rpartition('.')[2]}"
    return str(change._replace(name=name))


def _note(
    job: CleanJob,
    counts: CleanCounts,
    sizes: dict[str, int],
    rows: RowsDigest,
    sha256: str | None = None,
) -> dict[str, Any]:
    recorded = {
        "begun": job.begun,
        "counts": counts.record(),
        "sizes": sizes,
        "rows_sha256": rows.hexdigest(),
        "sha256": sha256,
    }
    write_atomically(job.folder / PROGRESS, json.dumps(recorded).encode())
    return recorded


def _clean(
    records: Iterable[Record],
    cleaner: Cleaner,
    job: CleanJob,
    recorded: dict[str, Any],
    watch: Callable[[CleanCounts], None],
) -> dict[str, Any]:
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(_reopened(job.folder / name, size))
            for name, size in recorded["sizes"].items()
        }
        sync_directory(job.folder)
        for added in _remembered(files[MEMORY]):
            cleaner.restore(added)
        cleaner.counts = CleanCounts.of_record(recorded["counts"])
        if cleaner.counts.read:
            note_resumed(f"{cleaner.counts.read:,} texts", job.folder / PROGRESS)
        with (job.folder / KEPT).open("rb") as kept_before:
            digest = hashlib.file_digest(kept_before, "sha256")
        reading, rows = iter(records), RowsDigest()
        for window in _windows(islice(reading, cleaner.counts.read)):
            _digest(rows, window)
        if rows.hexdigest() != recorded["rows_sha256"]:
            change = f"its first {cleaner.counts.read:,} rows are others now"
            refuse_changes(job.folder, [change], f"remove {job.folder} to begin anew")
        last_record = time.monotonic()
        for window in _windows(reading):
            _digest(rows, window)
            first = cleaner.counts.read
            # Messages must not show personal data.
            texts = [record.text(job.column, quoting=False) for record in window]
            found = cleaner.clean(texts)
            kept = b"".join(
                _line(record, one, job) for record, one in zip(window, found, strict=True)
            )
            digest.update(kept)
            files[KEPT].write(kept)
            if DROPPED in files:
                files[DROPPED].writelines(_dropped(first, found))
            _append(files[MEMORY], cleaner.added())
            if time.monotonic() - last_record >= RECORD_SECONDS:
                _note(job, cleaner.counts, _synced(files), rows)
                last_record = time.monotonic()
            watch(cleaner.counts)
        return _note(job, cleaner.counts, _synced(files), rows, digest.hexdigest())


def _windows(records: Iterable[Record]) -> Iterator[list[Record]]:
    reading = iter(records)
    while window := list(islice(reading, WINDOW_ROWS)):
        yield window


def _digest(rows: RowsDigest, window: Sequence[Record]) -> None:
    """Add rows to the digest of a run's input, which reveals changed rows when it resumes."""
    lines = [json_line(record.values, default=str).decode() for record in window]
    rows.add(lines, [None] * len(lines))


def _synced(files: dict[str, BinaryIO]) -> dict[str, int]:
    """Flush files to the disk, and return their sizes in bytes, by name."""
    for file in files.values():
        file.flush()
        os.fsync(file.fileno())
    return {name: file.tell() for name, file in files.items()}


@contextmanager
def _reopened(path: Path, size: int) -> Iterator[BinaryIO]:
    """Truncate a file to its first ``size`` bytes, and yield it open for appending."""
    path.touch()
    if path.stat().st_size < size:
        raise OutputError(
            f"{path} has {path.stat().st_size} bytes, of which {size} were recorded: it was "
            f"damaged; remove {path.parent} to begin anew"
        )
    with path.open("r+b") as stream:
        stream.truncate(size)
        stream.seek(size)
        yield stream


def _append(stream: BinaryIO, added: dict[str, Any]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **added)
    stream.write(packed.tell().to_bytes(_LENGTH_BYTES, "little"))
    stream.write(packed.getbuffer())


def _remembered(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield, window by window, what the interrupted run added to the cleaner's state.

    All of ``stream`` is read.
    """
    stream.seek(0)
    while length := stream.read(_LENGTH_BYTES):
        packed = io.BytesIO(stream.read(int.from_bytes(length, "little")))
        with np.load(packed, allow_pickle=False) as arrays:
            yield dict(arrays)


def _line(record: Record, cleaned: Cleaned, job: CleanJob) -> bytes:
    if cleaned.language is not None and job.language_column in record.values:
        record.refuse(
            f"the label of the text would replace the row's own column {job.language_column!r}; "
            "name another one with language_column="
        )
    if cleaned.text is None:
        return b""
    values = {**record.values, job.column: cleaned.text}
    if cleaned.language is not None:
        values[job.language_column] = cleaned.language
    return json_line(values, default=str)


def _dropped(first: int, found: Sequence[Cleaned]) -> Iterator[bytes]:
    for number, one in enumerate(found, first):
        if one.text is None:
            yield json_line({"row": number, "reason": one.reason, "original": one.original})
