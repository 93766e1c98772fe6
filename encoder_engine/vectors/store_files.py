"""Reads files of results and ids block by block; damage raises :class:`ReadError`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import EncoderEngineError, ReadError, ShapeError
from encoder_engine.files import file_sha256
from encoder_engine.inputs.columnar import import_lance, import_pyarrow
from encoder_engine.vectors.columns import (
    COLUMNS,
    VECTOR_COLUMN,
    kind_of_columns,
    rows_of_columns,
    stated_dimension,
    stated_ids,
)
from encoder_engine.vectors.manifest import ShardRecord, rows_name, shard_name, shard_names
from encoder_engine.vectors.store import ids_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.inputs.identifiers import Identifier
    from encoder_engine.vectors.columns import Kind

Array = np.ndarray[Any, np.dtype[Any]]

# 25 MB of 384 features: the scores of a block stay small beside it.
BLOCK_ROWS = 16_384


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file of a store; ``checksums``: the recorded SHA-256 of the file and of its file of ids.

    ``rows``: the recorded number of rows; None: not recorded.
    """

    path: Path
    rows: int | None = None
    checksums: dict[Path, str]


def shards_of(folder: Path, manifest: dict[str, Any]) -> list[Part]:
    """Return the files of the shards that a manifest records."""
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

    Raises :class:`ReadError` if a file of digests is missing or changed.
    """
    for shard in [] if manifest is None else manifest["shards"]:
        path = folder / rows_name(shard["shard"])
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


def read_blocks(path: Path) -> Iterator[Array]:
    """Yield the vectors of a file, some thousand rows [n, D] at a time.

    .npy and .arrow files are mapped into memory. Raises :class:`ReadError` for a damaged file, and
    :class:`ShapeError` for a .npy file that is not [N, D].
    """
    with damage(path):
        if path.suffix == ".npy":
            stored = map_array(path)
            for start in range(0, len(stored), BLOCK_ROWS):
                yield stored[start : start + BLOCK_ROWS]
            return
        for batch in read_batches(path, [VECTOR_COLUMN]):
            yield rows_of_columns(batch, "dense")


def read_results(path: Path, kind: Kind, dimension: int | None = None) -> Iterator[Any]:
    """Yield the results of a file, some thousand rows at a time; see :func:`rows_of_columns`.

    Raises :class:`ReadError` for a damaged file.
    """
    if path.suffix == ".npy":
        yield from read_blocks(path)
        return
    with damage(path):
        for batch in read_batches(path, list(COLUMNS[kind])):
            yield rows_of_columns(batch, kind, dimension)


def kind_of_file(path: Path) -> Kind:
    """Return the kind of results in a file; a single .npy file counts as dense vectors.

    Raises :class:`ReadError` for a table without rows, and for columns that hold no results.
    """
    if path.suffix == ".npy":
        return "dense"
    with damage(path):
        for batch in read_batches(path, None):
            return kind_of_columns(batch.schema.names)
    raise ReadError(f"{path} holds no rows; embed again")


def vocabulary_of_file(path: Path) -> int | None:
    """Return the vocabulary size in the metadata of a table of sparse vectors, or None."""
    if path.suffix != ".npy":
        with damage(path):
            for batch in read_batches(path, None):
                return stated_dimension(batch.schema.metadata)
    return None


def map_array(path: Path) -> Array:
    """Map a .npy file into memory, read-only.

    Raises :class:`ShapeError` unless it is [N, D], and :class:`ReadError` for bytes after it.
    """
    stored = np.load(path, mmap_mode="r", allow_pickle=False)
    if stored.ndim != 2:
        raise ShapeError(f"{path} must hold rows of vectors [N, D], got {list(stored.shape)}")
    missing = path.stat().st_size - stored.offset - stored.nbytes
    if missing:
        raise ReadError(f"{path} is damaged: {missing} bytes follow its vectors; copy it again")
    mapped: Array = stored
    return mapped


def read_ids(path: Path, id_column: str | None) -> Iterator[Identifier]:
    """Yield the ids of a file; for a .npy file, from its file of ids.

    ``id_column``: the column of a table's ids; None: the one that the table's metadata states, or
    else the only column besides the results, if any. Raises :class:`ReadError` for a damaged file.
    """
    if path.suffix == ".npy":
        yield from _lines(ids_path(path))
        return
    with damage(path):
        for batch in read_batches(path, None if id_column is None else [id_column]):
            name = id_column or _find_ids(batch.schema, path)
            if name is None:
                return
            column = batch.column(name)
            column.validate(full=True)
            if column.null_count:
                raise ReadError(f"{path} is damaged: {name!r} holds nulls; copy it again")
            yield from column.to_pylist()


def has_ids(path: Path) -> bool:
    """Return whether a file has ids, in a column or in a separate file."""
    if path.suffix == ".npy":
        return ids_path(path).exists()
    with damage(path):
        for batch in read_batches(path, None):
            return _find_ids(batch.schema, path) is not None
    return False


def _find_ids(schema: Any, path: Path) -> str | None:
    """Return the name of a table's id column: as its metadata say, else the only other column.

    None: the table has no ids.
    """
    stated = stated_ids(schema.metadata)
    if stated is not None:
        return stated or None
    own = COLUMNS[kind_of_columns(schema.names)]
    others = [name for name in schema.names if name not in own]
    if len(others) > 1:
        raise ReadError(
            f"{path} has several columns beside its vectors ({', '.join(others)}), of which none "
            "is known to hold the ids; keep that one"
        )
    return others[0] if others else None


def kept_values(
    path: Path, names: list[str], rows: set[int], first_row: int
) -> dict[int, dict[str, Any]]:
    """Return the values of some rows in the columns ``names``: by row, then by column.

    ``first_row``: the row number of the file's first row.
    """
    found: dict[int, dict[str, Any]] = {}
    with damage(path):
        for batch in read_batches(path, names):
            for row in rows & set(range(first_row, first_row + batch.num_rows)):
                found[row] = batch.slice(row - first_row, 1).to_pylist()[0]
            first_row += batch.num_rows
    return found


def kept_of_file(path: Path) -> list[str]:
    """Return the names of a file's columns besides results and ids."""
    with damage(path):
        for batch in read_batches(path, None) if path.suffix != ".npy" else ():
            own = (*COLUMNS[kind_of_columns(batch.schema.names)], _find_ids(batch.schema, path))
            return [name for name in batch.schema.names if name not in own]
    return []


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file of ids. Raises :class:`ReadError` for an incomplete last line."""
    with damage(path), path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if not line.endswith("\n"):
                raise ReadError(f"{path} is damaged: its last line is cut short; copy it again")
            yield line.removesuffix("\n")


def refuse_non_finite(block: Array, path: Path, first_row: int) -> None:
    """Raise :class:`ReadError` for NaN or infinity in a block; one sum of squares detects both.

    ``first_row``: the number of the block's first row, for the message.
    """
    if block.dtype.kind != "f":
        return
    flat = block.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.dot(flat, flat)):
            return
    rows = np.flatnonzero(~np.isfinite(block).all(axis=1))
    if len(rows):
        row = first_row + int(rows[0])
        raise ReadError(
            f"{path} holds NaN or infinity in row {row}; embed it again, or copy it again", row=row
        )


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Convert a library's exception in reading a file to :class:`ReadError`."""
    try:
        yield
    except EncoderEngineError:
        raise
    except GeneratorExit:
        raise
    except FileNotFoundError as error:
        raise ReadError(f"{path} is missing; copy it again, or embed again") from error
    except Exception as error:  # numpy, pyarrow and lance raise errors of many types of their own
        reason = str(error).partition("\n")[0]
        raise ReadError(f"{path} is damaged: {reason:.200}; copy it again") from error
    except BaseException as error:
        # lance is written in Rust, of which a panic is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise ReadError(f"{path} is damaged: {error!s:.200}; copy it again") from error


def read_batches(path: Path, columns: list[str] | None) -> Iterator[Any]:
    """Yield the record batches of a table, with some columns or all."""
    pyarrow = import_pyarrow(f"reading {path.name}")
    if path.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(path) as parquet:
            yield from parquet.iter_batches(batch_size=BLOCK_ROWS, columns=columns)
        return
    if path.suffix == ".lance":
        lance = import_lance(f"reading {path.name}")
        reader = lance.LanceFileReader(str(path), columns=columns)
        yield from reader.read_all(batch_size=BLOCK_ROWS).toread_batches()
        return
    from pyarrow import ipc

    with pyarrow.memory_map(str(path)) as source:
        stored = ipc.open_file(source)
        for index in range(stored.num_record_batches):
            batch = stored.get_batch(index)
            yield batch if columns is None else batch.select(columns)
