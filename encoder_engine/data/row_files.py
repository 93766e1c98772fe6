"""Writes rows of a table as a .jsonl or .parquet file, whole or not at all."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import OutputError
from encoder_engine.files import PendingFile, writing
from encoder_engine.inputs.columnar import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["ROW_FILES", "write_rows"]

ROW_FILES = (".jsonl", ".parquet")
# Rows that are written together, which bounds memory.
_GROUP_ROWS = 4096


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], *, overwrite: bool = False) -> int:
    """Write rows that have the same columns, and return their number.

    Raises :class:`OutputError` for another suffix, for an existing file without ``overwrite``, and
    if there is no row.
    """
    if path.suffix not in ROW_FILES:
        raise OutputError(f"{path} must end in {' or '.join(ROW_FILES)}")
    if path.suffix == ".parquet":
        import_pyarrow(f"writing {path}")
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


def _groups(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    reading = iter(rows)
    while group := list(islice(reading, _GROUP_ROWS)):
        yield group


def _write_jsonl(pending: PendingFile, groups: Iterator[list[Mapping[str, Any]]]) -> int:
    number = 0
    for group in groups:
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in group)
        pending.stream.write(lines.encode())
        number += len(group)
    return number


def _write_parquet(pending: PendingFile, groups: Iterator[list[Mapping[str, Any]]]) -> int:
    pyarrow = import_pyarrow(f"writing {pending.target}")
    writer, number = None, 0
    try:
        for group in groups:
            table = pyarrow.Table.from_pylist([dict(row) for row in group])
            if writer is None:
                writer = pyarrow.parquet.ParquetWriter(pending.stream, table.schema)
            writer.write_table(table)
            number += len(group)
    finally:
        if writer is not None:
            writer.close()
    return number
