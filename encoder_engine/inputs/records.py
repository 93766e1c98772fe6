"""A row of a labelled file: its values by column, and its position for messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from encoder_engine.errors import RowError
from encoder_engine.json_values import nearest
from encoder_engine.strings import describe_surrogate, find_surrogate

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["Record", "read_span"]


class Record(NamedTuple):
    """A row of a file, or of values that the caller gives.

    ``values``: the values by the names of their columns.
    ``file``: the name of the file; empty for values of the caller.
    ``number``: its line or row in the file, from 1; ``unit``: the word for what it counts.
    ``row``: its index among all rows that are read, from 0.
    ``keywords``: the arguments that named the columns, such as ``{"text": "column="}``, for errors.
    """

    values: Mapping[str, Any]
    file: str = ""
    number: int = 0
    row: int = 0
    unit: str = "line"
    keywords: Mapping[str, str] = {}

    def refuse(self, reason: str) -> NoReturn:
        """Raise a :class:`RowError` that names this row."""
        where = f"{self.file}, {self.unit} {self.number}" if self.file else f"row {self.row}"
        raise RowError(
            f"{where}: {reason}", row=self.row, file=self.file, number=self.number, reason=reason
        )

    def has(self, column: str) -> bool:
        """Return whether the row has a value in a column."""
        return self.values.get(column) is not None

    def get(self, column: str, *, quoting: bool = True) -> Any:
        """Return a column's value; raises :class:`RowError` for a row without it.

        quoting: if False, the message quotes nothing from the file, not even column names, because
        in a .csv file without a header these are values of a row.
        """
        if column not in self.values:
            known = [str(name) for name in self.values]
            keyword = self.keywords.get(column)
            mend = "rename one of them" if keyword is None else f"name one with {keyword}"
            if not quoting:
                self.refuse(f"no column {column!r} among {len(known)}; {mend}")
            there = f"{nearest(column, known)}; there are {', '.join(known)}"
            self.refuse(f"no column {column!r}{there}: {mend}")
        value = self.values[column]
        if value is None:
            self.refuse(f"{column} is null; drop the row or fill it in")
        return value

    def text(self, column: str, *, quoting: bool = True) -> str:
        """Return a column's text, which UTF-8 can encode; ``quoting``: as in :meth:`get`."""
        value = self.get(column, quoting=quoting)
        if not isinstance(value, str):
            found = type(value).__name__ + (f" {value!r:.60}" if quoting else "")
            self.refuse(f"{column} must be a text, got {found}; cast the column to string")
        if not value.isascii() and (start := find_surrogate(value)) is not None:
            self.refuse(f"{column} has {describe_surrogate(value, start)}")
        return value

    def number_of(self, column: str) -> float:
        """Return a column's finite number; a string that contains a number is converted."""
        value = self.get(column)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            self.refuse(f"{column} must be a finite number, got {value!r:.60}")
        return number

    def name_of(self, column: str) -> str:
        """Return a column's value as a label's name; whole numbers and booleans become text."""
        value = self.get(column)
        if isinstance(value, bool):
            return str(value).lower()  # as JSON and Arrow write it
        if isinstance(value, int):
            return str(value)
        name = self.text(column)
        if not name.strip():
            self.refuse(f"{column} is blank; name a label or drop the row")
        return name

    def names_of(self, column: str) -> list[str]:
        """Return a column's list of names, such as the words of a sentence."""
        value = self.get(column)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
            self.refuse(f"{column} must be a list of texts, got {value!r:.60}")
        for place, name in enumerate(value):
            if not isinstance(name, str):
                self.refuse(f"{column}[{place}] must be a text, got {name!r:.60}")
            if not name.isascii() and (start := find_surrogate(name)) is not None:
                self.refuse(f"{column}[{place}] has {describe_surrogate(name, start)}")
        return list(value)


def read_span(record: Record, name: str, value: Any, length: int, unit: str) -> tuple[int, int]:
    """Return a value as ``(start, stop)`` within a text of ``length`` units.

    name, unit: the value's name in the row, and the unit (words, characters), for messages.
    Raises :class:`RowError` for a value that is no such range.
    """
    pair = list(value) if hasattr(value, "__len__") and not isinstance(value, str) else []
    whole = all(hasattr(end, "__index__") and not isinstance(end, bool) for end in pair)
    if len(pair) != 2 or not whole or not 0 <= pair[0] < pair[1] <= length:
        record.refuse(
            f"{name} must be [start, end] with 0 <= start < end <= {length}, the text's {unit}; "
            f"got {value!r:.60}"
        )
    return int(pair[0]), int(pair[1])
