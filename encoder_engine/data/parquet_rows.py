"""Writes rows as parquet groups whose column types may widen while the file is being written."""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NoReturn

from encoder_engine.errors import OutputError
from encoder_engine.inputs.columnar import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine.files import PendingFile

__all__ = ["ParquetRows"]


class ParquetRows:
    """Writes groups of rows to a parquet file whose schema fits all rows, not only the first group.

    A parquet file has one schema. Where a group needs wider types (a value where all before were
    null, a fraction where all before were integers, strings in lists that were empty), all groups
    before it are written again with these types. That is rare: a column widens at most three times.
    """

    def __init__(self, pending: PendingFile) -> None:
        self.num_rows = 0
        self._pending = pending
        self._pyarrow = import_pyarrow(f"writing {pending.target}")
        self._schema: Any = None
        self._writer: Any = None

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append a group of rows to the parquet file.

        Raises :class:`OutputError` that names the first row with other columns than the very first
        row, or with a value that shares no type with the values before it in its column.
        """
        self._check_columns(rows)
        plain = [dict(row) for row in rows]
        try:
            table = self._pyarrow.Table.from_pylist(plain)
            schema = self._unified(self._schema, table.schema)
            table = table.cast(schema)
            if self._writer is not None and schema != self._schema:
                self._widen(schema)
        except _NOT_CONVERTED as error:
            self._refuse(plain, error)
        if self._writer is None:
            self._writer = self._open(schema)
        self._schema = schema
        self._writer.write_table(table)
        self.num_rows += len(rows)

    def close(self) -> None:
        """Write the end of the parquet file, and leave its stream open."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, schema: Any) -> Any:
        return self._pyarrow.parquet.ParquetWriter(self._pending.stream, schema)

    def _unified(self, schema: Any, other: Any) -> Any:
        if schema is None:
            return other
        return self._pyarrow.unify_schemas([schema, other], promote_options="permissive")

    def _widen(self, schema: Any) -> None:
        """Write the earlier groups again with a wider schema, by way of a temporary file."""
        self.close()
        stream = self._pending.stream
        stream.flush()
        with tempfile.TemporaryFile(dir=self._pending.path.parent) as former:
            with self._pending.path.open("rb") as written:
                shutil.copyfileobj(written, former)
            stream.seek(0)
            stream.truncate()
            self._writer = self._open(schema)
            file = self._pyarrow.parquet.ParquetFile(former)
            for group in range(file.num_row_groups):
                self._writer.write_table(file.read_row_group(group).cast(schema))

    def _check_columns(self, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = set(self._schema.names) if self._schema is not None else set(rows[0])
        for number, row in enumerate(rows, self.num_rows + 1):
            if row.keys() != columns:
                raise OutputError(
                    f"{self._pending.target} cannot hold row {number}: it has the columns "
                    f"{', '.join(row) or 'none'}, the first row has {', '.join(sorted(columns))}; "
                    "write null where a value is missing"
                )

    def _refuse(self, rows: list[dict[str, Any]], error: Exception) -> NoReturn:
        """Raise :class:`OutputError` for the first row whose types do not fit those before it."""
        number, schema = self.num_rows, self._schema
        for row in rows:
            number += 1
            try:
                table = self._pyarrow.Table.from_pylist([row])
                schema = self._unified(schema, table.schema)
                table.cast(schema)
            except _NOT_CONVERTED as reason:
                error = reason
                break
        else:
            # Each row alone has the types, but integers of former rows are no exact fractions.
            number = 0
        named = f"row {number}" if number else f"the first {self.num_rows + len(rows)} rows"
        raise OutputError(
            f"{self._pending.target} cannot hold {named}: {error}; a parquet column has one type: "
            "make its values one type, or name a .jsonl file"
        ) from error


# ArrowInvalid is a ValueError, and so is the error of a lone surrogate; ArrowTypeError is a
# TypeError; an integer beyond 64 bits overflows.
_NOT_CONVERTED = (ValueError, TypeError, OverflowError)
