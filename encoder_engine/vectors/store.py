"""Writes results to a file in constant memory; the file appears complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.errors import OutputError
from encoder_engine.files import PendingFile, check_apart, check_target, sync_directory
from encoder_engine.inputs.columnar import import_lance, import_pyarrow
from encoder_engine.inputs.identifiers import IdentifierType
from encoder_engine.vectors.columns import (
    COLUMNS,
    ID_COLUMN,
    VECTOR_COLUMN,
    columns_of,
    metadata_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from encoder_engine.inputs.identifiers import Identifier
    from encoder_engine.vectors.columns import Kind

ENDINGS = (".npy", ".parquet", ".arrow", ".lance")
# Room for any shape numpy can hold; a multiple of 64 keeps the data aligned, as the format asks.
_NPY_HEADER_SIZE = 128
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_ROW_GROUP_ROWS = 65_536

Array = np.ndarray[Any, np.dtype[Any]]


class VectorStore:
    """An output file being written; a context manager that publishes it on a clean exit.

    path: a ``.npy`` file (ids one a line in a second file, see :func:`ids_path`), or a
        ``.parquet``, ``.arrow`` or ``.lance`` table with vectors as fixed-size lists under
        ``embedding``.
    id_column: the column of the ids; None: no ids.
    overwrite: replace an existing output.
    group_rows: rows of a row group of a table; None: one group for each call of :meth:`append`.
    kind: the kind of the results; sparse vectors and vectors of tokens need a table.

    At every moment an existing .npy file is complete and matches its file of ids: if ids are
    replaced or removed, the old vectors are removed first and the new ones appear last. Raises
    :class:`OutputError` for an output that exists, without ``overwrite``, or that cannot be
    completed; no file is left then.
    """

    def __init__(
        self,
        path: Path,
        *,
        id_column: str | None = None,
        overwrite: bool = False,
        group_rows: int | None = None,
        kind: Kind = "dense",
    ) -> None:
        check_output(path, id_column=id_column, overwrite=overwrite, kind=kind)
        self.num_rows = 0
        self._path = path
        self._overwrite = overwrite
        self._writer: _NpyWriter | _TableWriter
        # In the order in which they are published: the vectors come last.
        if path.suffix != ".npy":
            self._files = [PendingFile(path, overwrite=overwrite)]
            self._writer = _TABLE_WRITERS[path.suffix](
                self._files[0], id_column, group_rows, kind=kind
            )
        elif id_column is None:
            self._files = [PendingFile(path, overwrite=overwrite)]
            self._writer = _NpyWriter(self._files[0], None)
        else:
            names = (ids_path(path), path)
            self._files = [PendingFile(name, overwrite=overwrite) for name in names]
            self._writer = _NpyWriter(self._files[1], self._files[0])

    def append(
        self,
        vectors: Any,
        identifiers: Sequence[Identifier] = (),
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        """Write rows, [n, D] or of the store's kind, with their ids if ``id_column`` is set.

        kept: further columns of a table, arrays of pyarrow by name.
        """
        try:
            self._writer.append(vectors, identifiers, kept or {})
        except OSError as error:
            raise self._failed(error) from error
        self.num_rows += len(vectors)

    def append_table(self, table: Any) -> None:
        """Write the rows of another file of this format, given as a pyarrow table."""
        assert isinstance(self._writer, _TableWriter)
        try:
            self._writer.append_table(table)
        except OSError as error:
            raise self._failed(error) from error
        self.num_rows += table.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            self._writer.release()
            for file in self._files:
                file.discard()

    def _publish(self) -> None:
        if self.num_rows == 0:
            raise OutputError(f"{self._path} would hold no rows; nothing is written")
        try:
            self._writer.complete()
            for file in self._files:
                file.stream.flush()
                os.fsync(file.stream.fileno())
            self._make_way()
            self._rename()
        except OutputError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _make_way(self) -> None:
        """Remove the old vectors and ids of a .npy output where ids were or will be written.

        The vectors are removed before the ids, and both before the new files appear. Raises
        :class:`OutputError` for a file of ids that exists, without ``overwrite``.
        """
        if self._path.suffix != ".npy":
            return
        identifiers = ids_path(self._path)
        if not self._overwrite:
            check_target(identifiers, overwrite=False)
        elif len(self._files) > 1 or identifiers.exists():
            for old in (self._path, identifiers):
                old.unlink(missing_ok=True)
                sync_directory(old.parent)

    def _rename(self) -> None:
        """Give all temporary files their final names, or none of them."""
        ours = [os.fstat(file.stream.fileno()) for file in self._files]
        try:
            for file in self._files:
                file.publish()
        except BaseException:
            for file, status in reversed(list(zip(self._files, ours, strict=True))):
                with contextlib.suppress(OSError):
                    if os.path.samestat(file.target.stat(), status):
                        file.target.unlink()
            raise

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self._path} could not be completed: {error.strerror or error}; nothing is left of it"
        )


def ids_path(path: Path) -> Path:
    """Return the path of a .npy file's ids: ``vectors.npy`` has ``vectors.ids.txt``."""
    return path.with_suffix(".ids.txt")


def remove_partial(path: Path) -> None:
    """Remove a temporary file or folder of an interrupted run."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def check_output(
    path: Path,
    *,
    id_column: str | None,
    overwrite: bool,
    beside: Iterable[Path] = (),
    inputs: Iterable[Path] = (),
    kind: Kind = "dense",
    keep: Sequence[str] = (),
) -> None:
    """Raise :class:`OutputError`, before any work, for an output that could not be written.

    id_column, kind, keep: the ids, results and kept columns, which the file's format must hold.
    beside: further files that are written or removed with the output.
    inputs: files that are read, which no output may replace or remove.
    """
    if path.suffix not in ENDINGS:
        raise OutputError(
            f"{path} must end in {', '.join(ENDINGS)}, or in / to name a folder of shards"
        )
    outputs = [path, ids_path(path)] if path.suffix == ".npy" else [path]
    outputs += beside
    check_apart(outputs, inputs)
    for output in outputs:
        check_target(output, overwrite=overwrite)
    check_columns(path.suffix, id_column, kind, keep)


def check_columns(
    ending: str, id_column: str | None, kind: Kind = "dense", keep: Sequence[str] = ()
) -> None:
    """Raise an error if files with this suffix cannot hold the results, ids or kept columns.

    Raises :class:`OutputError`, and :class:`MissingDependencyError` where the library that writes
    such files is not installed.
    """
    if ending == ".npy":
        if keep:
            raise OutputError(
                "a .npy file has no columns for keep=; name a .parquet, "
                ".arrow or .lance file, or a folder with shard_format='parquet'"
            )
        if kind in ("sparse", "tokens", "predictions"):
            raise OutputError(
                f"a .npy file holds rows of one length, {kind} results differ; name a .parquet or "
                ".arrow file, or a folder"
            )
        return
    import_pyarrow(f"writing {ending}")
    if ending == ".lance":
        import_lance(f"writing {ending}")
    # A table with a column of this name is read as one of dense vectors.
    own = (*COLUMNS[kind], VECTOR_COLUMN)
    if id_column in own:
        raise OutputError(f"the id column may not be called {id_column!r}, as the vectors are")
    for name in keep:
        if name in (*own, id_column) or list(keep).count(name) > 1:
            raise OutputError(
                f"keep= names {name!r}, which is the name of the ids' or the vectors' "
                "column, or stands twice; leave it out, or rename the column"
            )


class _NpyWriter:
    """Writes a .npy file of unknown length: the header comes last, over a placeholder."""

    def __init__(self, vectors: PendingFile, identifiers: PendingFile | None) -> None:
        self._stream = vectors.stream
        self._identifiers = None if identifiers is None else identifiers.stream
        self._num_rows = 0
        self._row: Array | None = None
        self._stream.write(bytes(_NPY_HEADER_SIZE))

    def append(
        self, vectors: Array, identifiers: Sequence[Identifier], kept: Mapping[str, Any]
    ) -> None:
        assert not kept
        if self._row is None and len(vectors):
            self._row = vectors[0]
        self._stream.write(np.ascontiguousarray(vectors).data)
        self._num_rows += len(vectors)
        if self._identifiers is not None:
            self._identifiers.write("".join(f"{name}\n" for name in identifiers).encode())

    def complete(self) -> None:
        assert self._row is not None
        description = {
            "descr": np.lib.format.dtype_to_descr(self._row.dtype),
            "fortran_order": False,
            "shape": (self._num_rows, *self._row.shape),
        }
        size = _NPY_HEADER_SIZE - len(_NPY_MAGIC) - 2
        text = repr(description).ljust(size - 1) + "\n"
        assert len(text) == size
        self._stream.seek(0)
        self._stream.write(_NPY_MAGIC + size.to_bytes(2, "little") + text.encode("ascii"))

    def release(self) -> None:
        """Do nothing: this writer holds no resource besides its file."""


class _TableWriter(ABC):
    """The base of writers of tables by pyarrow; the first row determines the type of the ids."""

    def __init__(
        self,
        file: PendingFile,
        id_column: str | None,
        group_rows: int | None = None,
        *,
        kind: Kind = "dense",
    ) -> None:
        self._pyarrow = import_pyarrow("writing tables")
        self._kind: Kind = kind
        self._group_rows = group_rows
        self._waiting: list[Any] = []
        self._stream = file.stream
        self._id_column = id_column
        self._id_type = IdentifierType()
        self._writer: Any = None
        self._num_rows = 0

    def append(
        self, vectors: Any, identifiers: Sequence[Identifier], kept: Mapping[str, Any]
    ) -> None:
        pyarrow = self._pyarrow
        columns = {**kept, **columns_of(pyarrow, vectors, self._kind)}
        metadata = metadata_of(vectors, self._kind)
        if kept:
            metadata[ID_COLUMN] = self._id_column or ""
        if self._id_column is not None:
            self._id_type.check(identifiers, self._num_rows)
            columns = {self._id_column: pyarrow.array(identifiers), **columns}
        self.append_table(pyarrow.table(columns, metadata=metadata or None))

    def append_table(self, table: Any) -> None:
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._num_rows += table.num_rows
        if self._group_rows is None:
            self._write(table)
            return
        self._waiting.append(table)
        self._write_groups(self._group_rows)

    def _write_groups(self, num_rows: int) -> None:
        """Write the buffered rows in groups of ``num_rows``, and keep the remainder."""
        if sum(table.num_rows for table in self._waiting) < num_rows:
            return
        waiting = self._pyarrow.concat_tables(self._waiting).combine_chunks()
        for start in range(0, waiting.num_rows - num_rows + 1, num_rows):
            # A copy, since a slice would be written with the whole table that it is a part of.
            self._write(self._copy(waiting.slice(start, num_rows)))
        self._waiting = [waiting.slice(waiting.num_rows - waiting.num_rows % num_rows)]

    def _copy(self, table: Any) -> Any:
        return table.take(self._pyarrow.array(range(table.num_rows)))

    @abstractmethod
    def _open(self, schema: Any) -> Any:
        """Open pyarrow's writer for a schema."""

    @abstractmethod
    def _write(self, table: Any) -> None:
        """Append a pyarrow table to the file."""

    def complete(self) -> None:
        if any(table.num_rows for table in self._waiting):
            rest = self._pyarrow.concat_tables(self._waiting).combine_chunks()
            self._write(self._copy(rest))
        self._waiting = []
        self._writer.close()
        self._writer = None

    def release(self) -> None:
        """Close pyarrow's writer before its file is closed; otherwise its finalizer fails."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()


class _ParquetWriter(_TableWriter):
    """Appends row groups to a Parquet file."""

    def _open(self, schema: Any) -> Any:
        return self._pyarrow.parquet.ParquetWriter(self._stream, schema)

    def _write(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)


class _ArrowWriter(_TableWriter):
    """Appends record batches to an Arrow IPC file, which readers can map into memory."""

    def _open(self, schema: Any) -> Any:
        from pyarrow import ipc

        return ipc.new_file(self._stream, schema)

    def _write(self, table: Any) -> None:
        self._writer.write_table(table)


class _LanceWriter(_TableWriter):
    """Appends to a Lance file, which lance opens by name.

    lance writes temporary files next to the file and leaves them where it fails, so the file gets a
    folder of its own.
    """

    def __init__(
        self,
        file: PendingFile,
        id_column: str | None,
        group_rows: int | None = None,
        *,
        kind: Kind = "dense",
    ) -> None:
        super().__init__(file, id_column, group_rows, kind=kind)
        self._file = file
        self._scratch = file.path.with_suffix(".scratch.partial")
        self._scratch.mkdir()

    def _open(self, schema: Any) -> Any:
        # From version 2.1 on, texts are packed in a random order: two runs write different bytes.
        writer = import_lance("writing .lance").LanceFileWriter
        return writer(str(self._scratch / "file"), schema, version="2.0")

    def _write(self, table: Any) -> None:
        with _lance_errors():
            self._writer.write_batch(table)

    def complete(self) -> None:
        with _lance_errors():
            super().complete()
        self._stream.close()
        (self._scratch / "file").replace(self._file.path)
        self._file.stream = self._file.path.open("r+b")

    def release(self) -> None:
        super().release()
        shutil.rmtree(self._scratch, ignore_errors=True)


@contextlib.contextmanager
def _lance_errors() -> Iterator[None]:
    """Remove the location in lance's source code from lance's error messages."""
    try:
        yield
    except OSError as error:
        raise OSError(str(error).partition(", /")[0]) from error


_TABLE_WRITERS: dict[str, type[_TableWriter]] = {
    ".parquet": _ParquetWriter,
    ".arrow": _ArrowWriter,
    ".lance": _LanceWriter,
}
