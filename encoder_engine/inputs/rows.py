"""A row of an input file, and the validation of its values, which all formats share."""

from __future__ import annotations

import difflib
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ReadError, RowError
from encoder_engine.strings import describe_surrogate, find_surrogate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from encoder_engine.inputs.identifiers import Identifier, UniqueIdentifiers


class Row(NamedTuple):
    """A row: a text, its id and, for pairs, the second text; None where there is no such column.

    source: the name of the row's file in messages.
    kept: the row's values in the columns that are written beside the results.
    """

    text: str
    identifier: Identifier | None
    pair: str | None = None
    source: str = ""
    kept: tuple[object, ...] = ()

    @property
    def content(self) -> str | tuple[str, str]:
        """The text, or both texts of a pair."""
        return self.text if self.pair is None else (self.text, self.pair)


@dataclass
class Meter:
    """A counter of the bytes that were read."""

    num_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns to read: texts, ids, second texts of pairs, and others to keep.

    kept: the columns that are written beside the results.
    given: whether the caller named a column; plain lines, which have no columns, are then refused.
    """

    text: str
    identifier: str | None = None
    pair: str | None = None
    kept: tuple[str, ...] = ()
    given: bool = False

    @property
    def names(self) -> list[str]:
        """The names of all columns, each once, the text column's first."""
        names = (self.text, self.pair, self.identifier, *self.kept)
        return list(dict.fromkeys(name for name in names if name is not None))

    def option_of(self, column: str) -> str:
        """Return the option by which the caller named a column, such as ``id_column=``."""
        options = {self.text: "column=", self.pair: "pair_column="}
        options[self.identifier] = "id_column="
        return options.get(column, "keep=")


def fail(error: RowError) -> None:
    """Raise the error of a bad row; the default ``skip`` of :class:`Reading`."""
    raise error


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The settings with which all files of a call are read.

    skip: called with the error of each bad row; raises it, or returns to continue.
    max_characters: the most characters of a text; a row with more is bad.
    unique: the ids so far: a row with a repeated id is bad; None: ids may repeat.
    """

    columns: Columns
    meter: Meter = field(default_factory=Meter)
    skip: Callable[[RowError], None] = fail
    max_characters: int | None = None
    unique: UniqueIdentifiers | None = None


@dataclass
class Place:
    """Where a reader is, for error messages: the file's name, and a line or row number."""

    name: str
    reading: Reading
    unit: str = "line"
    number: int = 0
    row: int = field(default=-1)

    def refuse(self, reason: str) -> NoReturn:
        """Raise a :class:`RowError` that names this position."""
        row = self.row if self.row >= 0 else None
        message = f"{self.name}, {self.unit} {self.number}: {reason}"
        raise RowError(message, row=row, file=self.name, number=self.number, reason=reason)

    def refuse_file(self, reason: str) -> NoReturn:
        """Raise a :class:`ReadError` that the file cannot be read beyond this position."""
        raise ReadError(f"{self.name}, {self.unit} {self.number}: {reason}")

    def missing_column(self, column: str, known: Iterable[str]) -> str:
        """Return the message for a missing column, which lists the existing ones."""
        names = [str(name) for name in known]
        nearest = difflib.get_close_matches(column, names, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        if len(names) == 1:
            for separator in ";,\t|":
                if column in names[0].split(separator):
                    return (
                        f"no column {column!r}: fields seem to be separated by {separator!r}; save "
                        "the table with commas as .csv, or with tabs as .tsv"
                    )
        there = ", ".join(names) or "none"
        option = self.reading.columns.option_of(column)
        return f"no column {column!r}; {hint}there are {there}: name one with {option}"

    def text(self, value: object, column: str) -> str:
        """Return a value; raises :class:`RowError` if it is no valid text, or too long."""
        if not isinstance(value, str):
            if value is None:
                self.refuse(f"{column} is null; drop the row or put an empty text")
            self.refuse(
                f"{column} must be a text, got {type(value).__name__} {value!r:.60}; cast the "
                "column to string"
            )
        limit = self.reading.max_characters
        if limit is not None and len(value) > limit:
            self.refuse(
                f"{column} has {len(value)} characters, the limit is {limit}; split it, or raise "
                "max_characters="
            )
        if not value.isascii() and (start := find_surrogate(value)) is not None:
            self.refuse(f"{column} has {describe_surrogate(value, start)}")
        return value

    def identifier(self, value: object, column: str) -> Identifier:
        """Return an id; raises :class:`RowError` if it is no one-line string or whole number."""
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            if value is None:
                self.refuse(f"{column} is null; every row needs an id")
            self.refuse(
                f"{column} must be a text or a whole number, got {type(value).__name__} "
                f"{value!r:.60}; cast the column to string"
            )
        if isinstance(value, str):
            if find_surrogate(value) is not None:
                self.refuse(f"{column} holds a lone surrogate: {value!a:.60}; remove it")
            if "\n" in value or "\r" in value:
                self.refuse(f"{column} holds a line break; ids are one line")
        return value

    def row_of(self, value_of: Callable[[str], object]) -> Row:
        """Make a row from a record, given as a function from a column's name to its value.

        Raises :class:`RowError` for a value that cannot be used.
        """
        columns = self.reading.columns
        text = self.text(value_of(columns.text), columns.text)
        pair = None if columns.pair is None else self.text(value_of(columns.pair), columns.pair)
        kept = tuple(self.kept(value_of(name), name) for name in columns.kept)
        if columns.identifier is None:
            return self.make_row(text, None, pair, kept)
        identifier = self.identifier(value_of(columns.identifier), columns.identifier)
        return self.make_row(text, identifier, pair, kept)

    def kept(self, value: object, column: str) -> object:
        """Return a kept value; raises :class:`RowError` for a text that UTF-8 cannot encode."""
        if isinstance(value, str) and (start := find_surrogate(value)) is not None:
            self.refuse(f"{column} has {describe_surrogate(value, start)}")
        return value

    def make_row(
        self,
        text: str,
        identifier: Identifier | None,
        pair: str | None = None,
        kept: tuple[object, ...] = (),
    ) -> Row:
        """Make a row; raises :class:`RowError` for a repeated id if ids must be unique."""
        unique = self.reading.unique
        if unique is not None and identifier is not None and not unique.add(identifier):
            self.refuse(f"the id {identifier!r:.60} came before; ids are to be unique")
        return Row(text, identifier, pair, self.name, kept)
