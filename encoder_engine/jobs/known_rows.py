"""The rows of a finished store, by which an appending run tells what is new in its inputs."""

from __future__ import annotations

from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.inputs.identifiers import TemporaryDatabase
from encoder_engine.vectors.store_files import row_digests

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from encoder_engine.inputs.digest import RowKeys
    from encoder_engine.inputs.rows import Row
    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["KnownRows"]

_UNSEEN, _SAME, _CHANGED = range(3)


class KnownRows:
    """Marks the rows of a store that its inputs still hold, in a temporary database.

    How it works: the key of a row is its id, or without ids the digest of its file and its text;
    equal lines of a file are as many rows. A row of the inputs whose key is not there, or was there
    less often, is new. One of a known id and another text has changed: it is embedded as well, and
    the stored row goes.

    Raises :class:`InputError` for a store that holds an id twice.
    """

    def __init__(self, store: StoredVectors, keys: RowKeys) -> None:
        self._keys = keys
        self._rows = TemporaryDatabase()
        self._rows.executescript(
            "CREATE TABLE known (key BLOB, state INT, row INT, content BLOB,"
            " PRIMARY KEY (key, state, row)) WITHOUT ROWID; BEGIN;"
        )
        digests = row_digests(store.path, store.manifest)
        if keys.by_id:
            names = (str(name).encode() for name in store.iterate_ids())
            values: Iterator[tuple[Any, ...]] = zip(names, repeat(_UNSEEN), count(), digests)
        else:
            values = ((digest, _UNSEEN, row, digest) for row, digest in enumerate(digests))
        self._rows.executemany("INSERT INTO known VALUES (?, ?, ?, ?)", values)
        if keys.by_id:
            twice = "SELECT key FROM known GROUP BY key HAVING count(*) > 1 LIMIT 1"
            for (name,) in self._rows.execute(twice):
                raise InputError(
                    f"{store.path} holds the id {name.decode()!r:.60} twice, so its rows cannot be "
                    "told apart; embed it again, with unique_ids=True"
                )

    def unknown(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows that are new or whose text has changed, and mark all others."""
        find = "SELECT row, content FROM known WHERE key = ? AND state = 0 ORDER BY row LIMIT 1"
        mark = "UPDATE known SET state = ? WHERE key = ? AND state = 0 AND row = ?"
        for row in rows:
            content = self._keys.digest(row.content, row.source)
            key = str(row.identifier).encode() if self._keys.by_id else content
            stored = self._rows.execute(find, (key,)).fetchone()
            if stored is not None:
                state = _SAME if stored[1] == content else _CHANGED
                self._rows.execute(mark, (state, key, stored[0]))
                if state == _SAME:
                    continue
            yield row

    def outdated(self, *, missing: bool) -> npt.NDArray[np.int64]:
        """Return the stored rows whose text has changed, with ``missing`` also those no input has.

        Complete once :meth:`unknown` has ended.
        """
        states = (_CHANGED, _UNSEEN) if missing else (_CHANGED, _CHANGED)
        found = self._rows.execute(
            "SELECT row FROM known WHERE state IN (?, ?) ORDER BY row", states
        )
        return np.fromiter(chain.from_iterable(found), np.int64)
