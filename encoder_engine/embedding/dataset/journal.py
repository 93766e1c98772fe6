"""What a run has finished: a line of JSON a shard, on the disk before the next begins."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import OutputError
from encoder_engine.files import sync_directory, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL_NAME = "journal.jsonl"
MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A finished shard: ``files`` maps names to SHA-256; ``rows_sha256`` is of what went in."""

    shard: int
    rows: int
    tokens: int
    truncated_rows: int
    rows_sha256: str
    files: dict[str, str]


class Journal:
    """The plan of a run and its finished shards, in a file that only grows.

    A last line cut short by a kill or a full disk is dropped: its shard is made again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.plan: dict[str, Any] | None = None
        self.records: dict[int, ShardRecord] = {}
        if path.exists():
            self._read()

    def _read(self) -> None:
        whole, newline, torn = self._path.read_bytes().rpartition(b"\n")
        try:
            values = [json.loads(line) for line in (whole + newline).splitlines()]
            if values:
                self.plan = values[0]["plan"]
            records = [ShardRecord(**value) for value in values[1:]]
        except (ValueError, TypeError, KeyError) as error:
            raise OutputError(
                f"{self._path} is damaged ({error}); start again with overwriting (--overwrite)"
            ) from error
        self.records = {record.shard: record for record in records}
        if torn:
            with self._path.open("r+b") as file:
                file.truncate(len(whole) + len(newline))
                os.fsync(file.fileno())

    def begin(self, plan: dict[str, Any]) -> None:
        """Write the plan, as the first line."""
        write_atomically(self._path, _line({"plan": plan}))
        self.plan, self.records = plan, {}

    def add(self, record: ShardRecord) -> None:
        """Write a finished shard, and wait until it is on the disk."""
        line = _line(asdict(record))
        with self._path.open("ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(file.fileno())
        self.records[record.shard] = record

    def remove(self) -> None:
        """Remove the file, once the manifest says all that it does."""
        self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)


def _line(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=True) + "\n").encode("ascii")


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Read a folder's manifest, or None where there is none: then the output is not whole."""
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_bytes())
        manifest["plan"], manifest["shards"]
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(f"{path} is damaged ({error!r}); start again (--overwrite)") from error
    found: dict[str, Any] = manifest
    return found


def describe_changes(before: Any, now: Any, name: str = "") -> list[str]:
    """List what differs between two plans, by dotted names."""
    if isinstance(before, dict) and isinstance(now, dict):
        changes = []
        for key in sorted({*before, *now}):
            inner = f"{name}.{key}" if name else key
            changes += describe_changes(before.get(key), now.get(key), inner)
        return changes
    return [] if before == now else [f"{name} was {before!r:.80}, is {now!r:.80}"]
