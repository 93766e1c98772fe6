"""Columns of the inputs that a store keeps beside its results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ReadError
from encoder_engine.inputs.columnar import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["KeptColumns"]


class KeptColumns:
    """Makes Arrow arrays of kept columns; a column's type is that of its first row.

    A null in the first row makes a column of texts. Values that are not texts are written to such a
    column as JSON.

    types: the types of the columns of a store to which rows are appended, by name.
    """

    def __init__(self, names: Sequence[str], types: Mapping[str, Any] | None = None) -> None:
        self._names = names
        self._types = dict(types or {})

    def arrays(self, rows: Sequence[tuple[object, ...]], first_row: int) -> dict[str, Any]:
        """Return the kept values of rows as arrays by column.

        Raises :class:`ReadError` for a value of another type than its column's.
        """
        columns = zip(*rows, strict=True)
        return {
            name: self._array(name, list(values), first_row)
            for name, values in zip(self._names, columns, strict=True)
        }

    def _array(self, name: str, values: list[Any], first_row: int) -> Any:
        pyarrow = import_pyarrow("keeping columns")
        kind = self._types.get(name)
        if kind is None:
            first = pyarrow.array(values[:1]).type
            kind = pyarrow.string() if pyarrow.types.is_null(first) else first
            self._types[name] = kind
        if kind == pyarrow.string():
            values = [v if v is None or isinstance(v, str) else _as_json(v) for v in values]
        try:
            return pyarrow.array(values, kind)
        except (pyarrow.ArrowException, OverflowError):
            for row, value in enumerate(values, start=first_row):
                try:
                    pyarrow.array([value], kind)
                except (pyarrow.ArrowException, OverflowError) as error:
                    raise ReadError(
                        f"the column {name!r}, which keep= names, holds {kind} in its "
                        f"first row and {value!r:.60} in row {row}; make all values texts",
                        row=row,
                    ) from error
            raise


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
