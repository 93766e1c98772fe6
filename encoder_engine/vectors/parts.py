"""The files of a store: each with its rows and its recorded checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, ReadError
from encoder_engine.files import file_sha256
from encoder_engine.vectors.manifest import ShardRecord, rows_name, shard_name, shard_names
from encoder_engine.vectors.store_files import damage, map_array

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Part", "row_digests", "shards_of", "signature"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file of vectors; ``checksums``: the recorded SHA-256 of it and of its file of ids."""

    path: Path
    rows: int | None = None
    checksums: dict[Path, str]


def shards_of(folder: Path, manifest: dict[str, Any]) -> list[Part]:
    """Return the shards that a manifest records."""
    options = manifest["plan"]["options"]
    parts = []
    for shard in manifest["shards"]:
        record = ShardRecord(**shard)
        names = shard_names(record.shard, options)
        parts.append(
            Part(
                path=folder / shard_name(record.shard, options["shard_format"]),
                rows=record.rows,
                checksums={folder / name: record.files[name] for name in names},
            )
        )
    return parts


def row_digests(folder: Path, manifest: dict[str, Any] | None) -> Iterator[bytes]:
    """Yield the digest of each row of a folder; see :class:`RowKeys`.

    Raises :class:`ReadError` where a file of them is missing or was changed, and
    :class:`InputError` for a store without.
    """
    for shard in [] if manifest is None else manifest["shards"]:
        path = folder / rows_name(shard["shard"])
        if path.name not in shard["files"]:
            raise InputError(
                f"{folder} was made by a version that kept no digests of its rows; embed it again, "
                "with overwrite=True (--overwrite)"
            )
        with damage(path):
            if file_sha256(path) != shard["files"][path.name]:
                raise ReadError(f"{path} is not as it was written; copy it again")
            yield from map(bytes, map_array(path))


def signature(path: Path) -> tuple[int, ...]:
    """Return device, inode, size and times of a file, which change when it is replaced or written.

    Raises :class:`ReadError` for a missing file.
    """
    with damage(path):
        status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
