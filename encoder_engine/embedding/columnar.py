"""The readers of .parquet and Arrow IPC files, through pyarrow, some thousand rows at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.rows import Columns, Identifier, Place, Reading, Row
from encoder_engine.errors import EncoderEngineError, MissingDependencyError, ReadError, RowError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BATCH_ROWS = 4096
_NOT_UTF_8 = object()


def import_pyarrow(purpose: str) -> Any:
    """Import ``pyarrow.parquet`` or raise :class:`MissingDependencyError` naming the extra."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError(purpose, library="pyarrow", extra="data") from None
    return pyarrow


def import_lance(purpose: str) -> Any:
    """Import ``lance.file`` or raise :class:`MissingDependencyError` naming the extra."""
    try:
        import lance.file
    except ImportError:
        raise MissingDependencyError(purpose, library="pylance", extra="lance") from None
    return lance.file


def read_parquet(path: Path, reading: Reading) -> Iterator[Row]:
    """Yield the rows of a file whose text column holds strings.

    Raises :class:`ReadError` for a damaged file and a missing or mistyped column.
    """
    pyarrow = import_pyarrow(f"reading {path.name}")
    with (
        _damage(pyarrow, path, "parquet file"),
        pyarrow.parquet.ParquetFile(path) as file,
    ):
        _check_schema(pyarrow, file.schema_arrow, str(path), reading.columns)
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=reading.columns.names)
        yield from _metered_rows(batches, path, reading, num_rows=file.metadata.num_rows)


def read_arrow(path: Path, reading: Reading) -> Iterator[Row]:
    """Yield the rows of an Arrow IPC file or stream; as :func:`read_parquet`."""
    pyarrow = import_pyarrow(f"reading {path.name}")
    import pyarrow.ipc as ipc

    with _damage(pyarrow, path, "Arrow IPC file"), pyarrow.OSFile(str(path)) as source:
        try:
            file = ipc.open_file(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            stream = ipc.open_stream(source)
            _check_schema(pyarrow, stream.schema, str(path), reading.columns)
            yield from _metered_rows(_slices(stream), path, reading, num_rows=None)
            return
        _check_schema(pyarrow, file.schema, str(path), reading.columns)
        batches = (file.get_batch(index) for index in range(file.num_record_batches))
        yield from _metered_rows(_slices(batches), path, reading, num_rows=None)


def _slices(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)


@contextmanager
def _damage(pyarrow: Any, path: Path, kind: str) -> Iterator[None]:
    """Say of what pyarrow cannot read that the file is damaged."""
    try:
        yield
    except EncoderEngineError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ReadError(f"{path} is damaged or no {kind} ({reason}); write it again") from None


def _metered_rows(
    batches: Iterator[Any], path: Path, reading: Reading, *, num_rows: int | None
) -> Iterator[Row]:
    """Yield rows and count bytes: the file's, shared out evenly, or else the columns' own."""
    place, size = Place(str(path), reading, unit="row"), path.stat().st_size
    counted = 0
    for batch in batches:
        yield from _rows(batch, place)
        share = batch.nbytes if num_rows is None else size * batch.num_rows // max(num_rows, 1)
        share = min(share, size - counted)
        counted += share
        reading.meter.num_bytes += share
    reading.meter.num_bytes += size - counted


def _rows(batch: Any, place: Place) -> Iterator[Row]:
    columns = place.reading.columns
    texts = _values(batch, columns.text)
    identifiers = None if columns.identifier is None else _values(batch, columns.identifier)
    for index, value in enumerate(texts):
        place.row += 1
        place.number = place.row + 1
        try:
            if value is _NOT_UTF_8:
                place.refuse(f"{columns.text} holds bytes that are not UTF-8; write it again")
            text = place.text(value, columns.text)
            identifier: Identifier | None = None
            if identifiers is not None and columns.identifier is not None:
                if identifiers[index] is _NOT_UTF_8:
                    place.refuse(f"{columns.identifier} holds bytes that are not UTF-8")
                identifier = place.identifier(identifiers[index], columns.identifier)
            row = place.make_row(text, identifier)
        except RowError as error:
            place.reading.skip(error)
            continue
        yield row


def _values(batch: Any, column: str) -> list[Any]:
    """Give a column's values; one by one where some of them are not UTF-8."""
    array = batch.column(column)
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError:
        return [_value(scalar) for scalar in array]
    return values


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return _NOT_UTF_8


def _check_schema(pyarrow: Any, schema: Any, name: str, columns: Columns) -> None:
    types = pyarrow.types
    for column in columns.names:
        if schema.names.count(column) != 1:
            known = ", ".join(schema.names)
            raise ReadError(f"{name} has no single column {column!r}; there are {known}")
        kind = schema.field(column).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if column == columns.text and not is_text:
            raise ReadError(f"{name}: column {column!r} holds {kind}, expected string")
        if column == columns.identifier and not (is_text or types.is_integer(kind)):
            raise ReadError(f"{name}: column {column!r} holds {kind}, expected string or integer")
