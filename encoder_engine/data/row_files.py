"""Writes rows of a table as a .jsonl or .parquet file, atomically."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from encoder_engine.data.parquet_rows import ParquetRows
from encoder_engine.errors import OutputError
from encoder_engine.files import PendingFile, check_target, writing
from encoder_engine.inputs.columnar import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["ROW_FILES", "check_row_file", "json_line", "write_rows"]

ROW_FILES = (".jsonl", ".parquet")
# Rows that are written together, which bounds memory.
_GROUP_ROWS = 4096


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], *, overwrite: bool = False) -> int:
    """Write rows that all have the same columns to a file, and return their number.

    Raises :class:`OutputError` for another suffix, for an existing file without ``overwrite``, if
    there is no row, and for a row whose types do not fit those before in a ``.parquet`` file.
    """
    check_row_file(path, overwrite=overwrite)
    pending = PendingFile(path, overwrite=overwrite)
    try:
        with writing(path):
            write = _write_parquet if path.suffix == ".parquet" else _write_jsonl
            number = write(pending, _groups(rows))
        if not number:
            raise OutputError(f"the inputs give no row; {path} was not written")
        with writing(path):
            pending.publish()
    finally:
        pending.discard()
    return number


def check_row_file(path: Path, *, overwrite: bool) -> None:
    """Raise the exceptions of :func:`write_rows` that do not depend on rows, before it is called.

    These are :class:`OutputError` if the file cannot be written, and
    :class:`MissingDependencyError` for ``.parquet`` without pyarrow.
    """
    if path.suffix not in ROW_FILES:
        raise OutputError(f"{path} must end in {' or '.join(ROW_FILES)}")
    check_target(path, overwrite=overwrite)
    if path.suffix == ".parquet":
        import_pyarrow(f"writing {path}")


def json_line(values: Mapping[str, Any], *, default: Callable[[Any], Any] | None = None) -> bytes:
    r"""Encode a row as a line of JSON in UTF-8, lone surrogates as escapes such as ``\ud800``.

    ``default``: a function that converts values of types that JSON lacks.
    """
    line = json.dumps(values, ensure_ascii=False, default=default) + "\n"
    try:
        return line.encode()
    except UnicodeEncodeError:
        return json.dumps(values, default=default).encode() + b"\n"


def _groups(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    reading = iter(rows)
    while group := list(islice(reading, _GROUP_ROWS)):
        yield group


def _write_jsonl(pending: PendingFile, groups: Iterator[list[Mapping[str, Any]]]) -> int:
    number = 0
    for group in groups:
        pending.stream.write(b"".join(map(json_line, group)))
        number += len(group)
    return number


def _write_parquet(pending: PendingFile, groups: Iterator[list[Mapping[str, Any]]]) -> int:
    written = ParquetRows(pending)
    try:
        for group in groups:
            written.write(group)
    finally:
        written.close()
    return written.num_rows
