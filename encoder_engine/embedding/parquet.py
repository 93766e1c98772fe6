"""The reader of .parquet files, through pyarrow, a row group at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.rows import Columns, Identifier, Meter, Place, Row
from encoder_engine.errors import MissingDependencyError, ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BATCH_ROWS = 4096


def import_pyarrow(purpose: str) -> Any:
    """Import ``pyarrow.parquet`` or raise :class:`MissingDependencyError` naming the extra."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError(purpose, library="pyarrow", extra="data") from None
    return pyarrow


def read_parquet(path: Path, columns: Columns, meter: Meter) -> Iterator[Row]:
    """Yield the rows of a file whose text column holds strings.

    Raises :class:`ReadError` for a damaged file, a missing or mistyped column, and a null.
    """
    pyarrow = import_pyarrow(f"reading {path.name}")
    size = path.stat().st_size
    place = Place(str(path), unit="row")
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_schema(pyarrow, file.schema_arrow, str(path), columns)
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns.names):
                yield from _rows(batch, columns, place)
                meter.num_bytes += size * batch.num_rows // total
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ReadError(
            f"{path} is damaged or no parquet file ({reason}); write it again"
        ) from None


def _rows(batch: Any, columns: Columns, place: Place) -> Iterator[Row]:
    texts = _values(batch, columns.text, place)
    identifiers = None
    if columns.identifier is not None:
        identifiers = _values(batch, columns.identifier, place)
    for index, value in enumerate(texts):
        place.row += 1
        place.number = place.row + 1
        identifier: Identifier | None = None
        if identifiers is not None and columns.identifier is not None:
            identifier = place.identifier(identifiers[index], columns.identifier)
        yield Row(place.text(value, columns.text), identifier)


def _values(batch: Any, column: str, place: Place) -> list[Any]:
    try:
        values: list[Any] = batch.column(column).to_pylist()
    except UnicodeDecodeError:
        place.number = place.row + 2
        place.refuse(f"{column} holds bytes that are not UTF-8 in this row or the next thousands")
    return values


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
