"""Readers of .parquet and Arrow IPC files by pyarrow, some thousand rows at a time."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from encoder_engine.errors import EncoderEngineError, MissingDependencyError, ReadError, RowError
from encoder_engine.inputs.rows import Columns, Place, Reading, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH_ROWS = 4096
_NOT_UTF_8 = object()


def import_pyarrow(purpose: str) -> Any:
    """Import ``pyarrow.parquet``; raises :class:`MissingDependencyError` with the extra's name."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError(purpose, library="pyarrow", extra="data") from None
    return pyarrow


def import_lance(purpose: str) -> Any:
    """Import ``lance.file``; raises :class:`MissingDependencyError` with the extra's name."""
    try:
        import lance.file
    except ImportError:
        raise MissingDependencyError(purpose, library="pylance", extra="lance") from None
    return lance.file


def read_parquet(
    path: Path | str, reading: Reading, *, stream: BinaryIO | None = None, size: int = 0
) -> Iterator[Row]:
    """Yield the rows of a Parquet file, whose text column must hold strings.

    ``stream``, ``size``: an open remote file, and its size in bytes; None: open the path.
    Raises :class:`ReadError` for a damaged file and a missing or mistyped column.
    """
    pyarrow = import_pyarrow(f"reading {path}")
    with (
        _damage(pyarrow, path, "parquet file"),
        pyarrow.parquet.ParquetFile(stream or path, page_checksum_verification=True) as file,
    ):
        _check_schema(pyarrow, file.schema_arrow, str(path), reading.columns)
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=reading.columns.names)
        size = size or Path(path).stat().st_size
        yield from _metered_rows(batches, path, reading, size, num_rows=file.metadata.num_rows)


def read_arrow(
    path: Path | str, reading: Reading, *, stream: BinaryIO | None = None, size: int = 0
) -> Iterator[Row]:
    """Yield the rows of an Arrow IPC file or stream; see :func:`read_parquet`."""
    pyarrow = import_pyarrow(f"reading {path}")
    import pyarrow.ipc as ipc

    def opened() -> Any:
        return pyarrow.OSFile(str(path)) if stream is None else pyarrow.PythonFile(stream, "r")

    with _damage(pyarrow, path, "Arrow IPC file"), opened() as source:
        file, batches = _open_arrow(pyarrow, ipc, source)
        _check_schema(pyarrow, file.schema, str(path), reading.columns)
        checked = _slices(pyarrow, batches, reading.columns)
        size = size or Path(path).stat().st_size
        yield from _metered_rows(checked, path, reading, size, num_rows=None)


def read_columns(
    path: Path | str, kind: str, *, stream: BinaryIO | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each row of a ``"parquet"`` or ``"arrow"`` file as a dict of values by column.

    Raises :class:`ReadError` for a damaged file, and for two columns of one name.
    """
    pyarrow = import_pyarrow(f"reading {path}")
    if kind == "parquet":
        with (
            _damage(pyarrow, path, "parquet file"),
            pyarrow.parquet.ParquetFile(stream or path, page_checksum_verification=True) as file,
        ):
            _check_names(file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                yield from batch.to_pylist()
        return
    import pyarrow.ipc as ipc

    opened = pyarrow.OSFile(str(path)) if stream is None else pyarrow.PythonFile(stream, "r")
    with _damage(pyarrow, path, "Arrow IPC file"), opened as source:
        file, batches = _open_arrow(pyarrow, ipc, source)
        _check_names(file.schema.names, path)
        for batch in batches:
            for column in batch.columns:
                _validate(pyarrow, column)
            yield from batch.to_pylist()


def _check_names(names: list[str], path: Path | str) -> None:
    """Raise :class:`ReadError` for two columns of one name, of which a dict would lose one."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ReadError(f"{path} has {names.count(twice)} columns {twice!r}; rename or drop one")


def _open_arrow(pyarrow: Any, ipc: Any, source: Any) -> tuple[Any, Iterator[Any]]:
    """Open an Arrow IPC file or stream; return the reader and an iterator of its batches."""
    try:
        file = ipc.open_file(source)
    except pyarrow.ArrowInvalid:
        source.seek(0)
        stream = ipc.open_stream(source)
        return stream, iter(stream)
    return file, (file.get_batch(index) for index in range(file.num_record_batches))


def _slices(pyarrow: Any, batches: Iterator[Any], columns: Columns) -> Iterator[Any]:
    """Yield the needed columns in batches of some thousand rows.

    Each batch is validated first: Arrow trusts the offsets in a file, and wrong ones may point
    anywhere in memory. Raises ``pyarrow.ArrowInvalid``.
    """
    for batch in batches:
        read = batch.select(columns.names)
        for column in read.columns:
            _validate(pyarrow, column)
        for start in range(0, read.num_rows, _BATCH_ROWS):
            yield read.slice(start, _BATCH_ROWS)


def _validate(pyarrow: Any, array: Any) -> None:
    """Validate an array's lengths, offsets and indices; its UTF-8 is checked row by row later."""
    types = pyarrow.types
    array.validate()
    if types.is_dictionary(array.type):
        array.indices.validate(full=True)
        _validate(pyarrow, array.dictionary)
        bounds = pyarrow.compute.min_max(array.indices)
        lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
        if lowest is not None and not 0 <= lowest <= highest < len(array.dictionary):
            raise pyarrow.ArrowInvalid(
                f"indices from {lowest} to {highest} in a dictionary of {len(array.dictionary)}"
            )
        return
    for text, binary in (
        (types.is_string, pyarrow.binary()),
        (types.is_large_string, pyarrow.large_binary()),
        (types.is_string_view, pyarrow.binary_view()),
    ):
        if text(array.type):
            array = array.view(binary)
    array.validate(full=True)


@contextmanager
def _damage(pyarrow: Any, path: Path | str, kind: str) -> Iterator[None]:
    """Convert pyarrow's exceptions to :class:`ReadError` for a damaged file."""
    try:
        yield
    except EncoderEngineError:
        raise
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise ReadError(f"{path} is damaged or no {kind} ({reason}); write it again") from None


def _metered_rows(
    batches: Iterator[Any], path: Path | str, reading: Reading, size: int, *, num_rows: int | None
) -> Iterator[Row]:
    """Yield the rows of a file's batches, and add the bytes read to the meter.

    size: the bytes of the file, of which each row counts an equal share.
    num_rows: the rows of the file; None: unknown, each batch counts its bytes in memory.
    """
    place = Place(str(path), reading, unit="row")
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
    values = {name: _values(batch, name) for name in columns.names}
    for index in range(batch.num_rows):
        place.row += 1
        place.number = place.row + 1
        try:
            row = place.row_of(partial(_readable, place, values, index))
        except RowError as error:
            place.reading.skip(error)
            continue
        yield row


def _readable(place: Place, values: dict[str, list[Any]], index: int, column: str) -> Any:
    """Return a column's value at an index; raise :class:`RowError` if its bytes are not UTF-8."""
    value = values[column][index]
    if value is _NOT_UTF_8:
        place.refuse(f"{column} holds bytes that are not UTF-8; write it again")
    return value


def _values(batch: Any, column: str) -> list[Any]:
    """Return a batch's column as a list; values that are not UTF-8 become ``_NOT_UTF_8``."""
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
            option = columns.option_of(column)
            raise ReadError(
                f"{name} has no single column {column!r}; there are {known}: name one with {option}"
            )
        kind = schema.field(column).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if column in (columns.text, columns.pair) and not is_text:
            raise ReadError(f"{name}: column {column!r} holds {kind}, expected string; cast it")
        if column == columns.identifier and not (is_text or types.is_integer(kind)):
            raise ReadError(
                f"{name}: column {column!r} holds {kind}, expected string or integer; cast it"
            )
