"""One row of an input file, and the checks every format shares."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from encoder_engine.embedding.texts import find_surrogate
from encoder_engine.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Iterable

Identifier = str | int


class Row(NamedTuple):
    """A text and, where an id column was asked for, its id."""

    text: str
    identifier: Identifier | None


@dataclass
class Meter:
    """How many bytes have been read so far; readers add to it."""

    num_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns to read."""

    text: str
    identifier: str | None = None

    @property
    def names(self) -> list[str]:
        """Both names, or the one."""
        return [self.text] if self.identifier is None else [self.text, self.identifier]


@dataclass
class Place:
    """Where a reader stands, for its error messages: ``name``, then a line or a row of it."""

    name: str
    unit: str = "line"
    number: int = 0
    row: int = field(default=-1)

    def refuse(self, message: str) -> NoReturn:
        """Raise a :class:`ReadError` that names this place."""
        row = self.row if self.row >= 0 else None
        raise ReadError(f"{self.name}, {self.unit} {self.number}: {message}", row=row)

    def refuse_column(self, column: str, known: Iterable[str]) -> NoReturn:
        """Raise a :class:`ReadError` about a column that is not there."""
        names = [str(name) for name in known]
        nearest = difflib.get_close_matches(column, names, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        self.refuse(f"no column {column!r}; {hint}there are {', '.join(names) or 'none'}")

    def text(self, value: object, column: str) -> str:
        """Return a value that is a text UTF-8 can encode; refuse any other."""
        if not isinstance(value, str):
            if value is None:
                self.refuse(f"{column} is null; drop the row or put an empty text")
            self.refuse(f"{column} must be a text, got {type(value).__name__} {value!r:.60}")
        if not value.isascii() and (start := find_surrogate(value)) is not None:
            self.refuse(
                f"{column} holds a lone surrogate, U+{ord(value[start]):04X} at character {start}; "
                "it is no character: remove it"
            )
        return value

    def identifier(self, value: object, column: str) -> Identifier:
        """Return a value that is a one-line text or a whole number; refuse any other."""
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            if value is None:
                self.refuse(f"{column} is null; every row needs an id")
            self.refuse(
                f"{column} must be a text or a whole number, "
                f"got {type(value).__name__} {value!r:.60}"
            )
        if isinstance(value, str):
            self.text(value, column)
            if "\n" in value or "\r" in value:
                self.refuse(f"{column} holds a line break; ids are one line")
        return value
