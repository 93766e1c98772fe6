"""The journal of a run: a line of JSON per finished shard, synced to disk before the next."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import OutputError
from encoder_engine.files import sync_directory, write_atomically
from encoder_engine.vectors.manifest import (
    DIGEST_KEY,
    JOURNAL_NAME,
    ShardRecord,
    UnexpectedValueError,
    check_plan,
    digest,
    read_records,
    record_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Journal:
    """The plan of a run and its finished shards, in an append-only file.

    Each line holds the SHA-256 of itself and of the line before, so a changed, lost or moved line
    is detected and raises :class:`OutputError`. A last line cut short by a kill or a full disk is
    dropped, and its shard is made again. Reading changes nothing.

    skipped: whether this run wrote the list of skipped rows in the folder.
    overwriting: whether an overwriting run began this journal; an overwriting run then resumes it
    instead of starting again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / JOURNAL_NAME
        self.plan: dict[str, Any] | None = None
        self.records: list[ShardRecord] = []
        self.skipped = False
        self.overwriting = False
        self._last = ""
        self._torn = False
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        if self.path.is_symlink() or not self.path.is_file():
            raise OutputError(f"{self.path} is not a plain file; name another folder")
        whole, newline, torn = self.path.read_bytes().rpartition(b"\n")
        self._torn = bool(torn)
        try:
            values = [json.loads(line) for line in (whole + newline).splitlines()]
            for value in values:
                self._check(value)
            if not values:
                raise UnexpectedValueError("it has no first line")
            check_plan(values[0].get("plan"))
            self.plan = values[0]["plan"]
            self.overwriting = record_value(values[0]).get("overwriting").boolean(default=False)
            shards = [value for value in values[1:] if "skipped" not in value]
            self.skipped = len(shards) < len(values[1:])
            for value in shards:
                value.pop(DIGEST_KEY, None)
            self.records = read_records(shards, values[0]["plan"]["options"])
        except (ValueError, RecursionError) as error:
            raise OutputError(
                f"{self.path} is damaged, or none of encoder-engine's ({error}); restore it, or "
                "embed into a new folder"
            ) from error

    def _check(self, value: Any) -> None:
        """Compare a line of the journal with its digest."""
        record_value(value, "a line").object()
        if value.get(DIGEST_KEY) != digest(value, self._last):
            raise UnexpectedValueError("a line does not match the SHA-256 that it records")
        self._last = value[DIGEST_KEY]

    def begin(
        self,
        plan: dict[str, Any],
        records: Iterable[ShardRecord] = (),
        *,
        skipped: bool = False,
        overwriting: bool = False,
    ) -> None:
        """Replace the journal's file by a new one, in one atomic write.

        ``plan``: what the run computes; ``records``: a record of each shard that is finished.
        ``skipped``, ``overwriting``: see the class.
        """
        self.plan, self.records, self.skipped, self._last = plan, list(records), skipped, ""
        self.overwriting = overwriting
        first = {"plan": plan, "overwriting": True} if overwriting else {"plan": plan}
        values: list[dict[str, Any]] = [first, *map(asdict, self.records)]
        values += [{"skipped": True}] if skipped else []
        write_atomically(self.path, b"".join(map(self._line, values)))
        self._torn = False

    def go_on(self) -> None:
        """Remove a last line that a kill cut short, before :meth:`add` appends lines."""
        if self._torn:
            self._rewrite(overwriting=self.overwriting)

    def forget_overwriting(self) -> None:
        """Have the next overwriting run start again, instead of resuming this one."""
        if self.overwriting:
            self._rewrite(overwriting=False)

    def _rewrite(self, *, overwriting: bool) -> None:
        assert self.plan is not None
        self.begin(self.plan, self.records, skipped=self.skipped, overwriting=overwriting)

    def add(self, record: ShardRecord) -> None:
        """Append a finished shard's record, and wait until the line is on the disk."""
        self._append(asdict(record))
        self.records.append(record)

    def note_skipped(self) -> None:
        """Record that this run writes the list of skipped rows.

        Called before the list is published.
        """
        if not self.skipped:
            self._append({"skipped": True})
            self.skipped = True

    def _append(self, value: dict[str, Any]) -> None:
        line = self._line(value)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o644)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _line(self, value: dict[str, Any]) -> bytes:
        self._last = digest(value, self._last)
        signed = {**value, DIGEST_KEY: self._last}
        return (json.dumps(signed, ensure_ascii=True) + "\n").encode("ascii")

    def remove(self) -> None:
        """Remove the journal, once the manifest has the same records."""
        self.path.unlink(missing_ok=True)
        sync_directory(self._folder)
