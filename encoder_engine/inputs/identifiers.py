"""Checks the ids of rows as they are read: that they are unique and of one type."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from encoder_engine.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Identifier", "IdentifierType", "TemporaryDatabase", "UniqueIdentifiers"]

Identifier = str | int


class TemporaryDatabase(sqlite3.Connection):
    """A database in a file that SQLite keeps in memory while it is small, and removes.

    Threads may use it one after another.
    """

    def __init__(self) -> None:
        super().__init__("", isolation_level=None, check_same_thread=False)
        self.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")

    def __del__(self) -> None:
        """Close the database; Python 3.13 warns of connections that are left open."""
        self.close()


class UniqueIdentifiers:
    """A set of ids in a temporary database: any number in constant memory."""

    def __init__(self) -> None:
        self._ids = TemporaryDatabase()
        self.clear()

    def clear(self) -> None:
        """Remove all ids, before the same inputs are read again."""
        self._ids.executescript(
            "DROP TABLE IF EXISTS ids; CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID;"
        )

    def add(self, identifier: Identifier) -> bool:
        """Add an id and return whether it is new; 7 and "7" are the same."""
        added = self._ids.execute("INSERT OR IGNORE INTO ids VALUES (?)", (str(identifier),))
        return added.rowcount == 1


class IdentifierType:
    """Checks that all ids have the type of the first, as one column requires."""

    def __init__(self) -> None:
        self._type: type | None = None

    def check(self, identifiers: Sequence[Identifier], first_row: int) -> None:
        """Raise :class:`ReadError` for an id of another type, or one beyond 64 bits."""
        for row, name in enumerate(identifiers, start=first_row):
            self._type = self._type or type(name)
            if type(name) is not self._type:
                raise ReadError(
                    f"the first id is of type {self._type.__name__}, but row {row} has {name!r}; "
                    "make them all texts or all whole numbers",
                    row=row,
                )
            if isinstance(name, int) and not -(2**63) <= name < 2**63:
                raise ReadError(
                    f"the id of row {row} does not fit 64 bits; write ids as texts", row=row
                )
