"""Appends to a finished folder of shards; readers see either the old or the new folder.

How it works: all files are made beside the folder, in ``_FOLDER.append.partial/``. The rows that
are new or have changed are embedded into its ``delta/``, shard by shard; a stopped run is resumed
there. Then ``next/`` is made, which is the complete new folder. Old shards without a change are
hard-linked into it. Neighbouring shards that fit into one are copied into one, without their
dropped rows. New rows come last. The manifest states the generation, a number that grows with each
append. Finally both folders exchange their names in one step, and the old one is removed. A kill
therefore leaves either the old folder or the new one, and no reader, not even one that lists the
folder's files itself, finds files of both.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, replace
from itertools import chain, count, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, OutputError
from encoder_engine.files import (
    file_sha256,
    partial_path,
    sync_directory,
    write_atomically,
)
from encoder_engine.folders import exchange_folders
from encoder_engine.inputs.digest import RowKeys
from encoder_engine.inputs.identifiers import TemporaryDatabase
from encoder_engine.jobs.folder import AGAIN, GROUP_ROWS, ShardFolder
from encoder_engine.jobs.folder_state import read_folder
from encoder_engine.jobs.job import DEFAULT_SHARD_ROWS
from encoder_engine.jobs.journal import Journal
from encoder_engine.jobs.kept_columns import KeptColumns
from encoder_engine.jobs.plan import plan_changes
from encoder_engine.locks import LOCK_NAME, FolderLock, refuse_locked
from encoder_engine.records import differences, refuse_changes
from encoder_engine.vectors.manifest import (
    DIGEST_KEY,
    MANIFEST_NAME,
    SKIPPED_NAME,
    ShardRecord,
    manifest_content,
    rows_name,
    shard_name,
    shard_names,
)
from encoder_engine.vectors.store import VectorStore
from encoder_engine.vectors.store_files import (
    map_array,
    read_batches,
    read_blocks,
    read_ids,
    row_digests,
)
from encoder_engine.vectors.stored_vectors import StoredVectors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.inputs.rows import Row
    from encoder_engine.jobs.job import DatasetJob
    from encoder_engine.jobs.outputs import SkippedRows

__all__ = ["GrowingFolder", "is_finished"]


_UNSEEN, _SAME, _CHANGED = range(3)


class KnownRows:
    """Marks which rows of a store are still in its inputs, in a temporary database.

    How it works: the key of a row is its id, or without ids the digest of its file and its text. A
    row of the inputs is new if the store lacks its key, or has it less often than the inputs. A row
    with a stored id and another text has changed: it is embedded again, and the stored row is
    dropped.

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
        """Yield the rows that are new or whose text has changed; mark the other rows as known."""
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
        """Return the numbers of the stored rows to drop: those whose text has changed.

        missing: also those that the inputs lack. Call it after :meth:`unknown` has yielded all.
        """
        states = (_CHANGED, _UNSEEN) if missing else (_CHANGED, _CHANGED)
        found = self._rows.execute(
            "SELECT row FROM known WHERE state IN (?, ?) ORDER BY row", states
        )
        return np.fromiter(chain.from_iterable(found), np.int64)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A finished shard, and which of its rows the next generation keeps (``stays``, bool [n])."""

    folder: Path
    record: ShardRecord
    stays: npt.NDArray[np.bool_]

    @property
    def num_rows(self) -> int:
        return int(self.stays.sum())


def is_finished(folder: Path) -> bool:
    """Return whether a folder holds a finished store."""
    return (folder / MANIFEST_NAME).exists()


class GrowingFolder(ShardFolder):
    """An :class:`Output` that adds new and changed rows to a finished folder of shards."""

    def __init__(self, job: DatasetJob, plan: dict[str, Any], model_name: str) -> None:
        self._target = job.output.resolve()
        self._place = partial_path(self._target, "append")
        self._lock = FolderLock(self._target)
        self._stale = False
        self._known: KnownRows
        self._former: dict[str, Any]
        self.growth: dict[str, int] = {}
        super().__init__(replace(job, output=self._place / "delta"), plan, model_name)

    @property
    def num_rows(self) -> int:
        """The number of rows of the whole store."""
        return int(self._former["rows"])

    @property
    def num_truncated_rows(self) -> int:
        """The number of truncated rows of the whole store, including rows dropped since."""
        return int(self._former["truncated_rows"])

    def _begin(self, stack: ExitStack) -> None:
        refuse_locked(self._target)
        stack.enter_context(self._lock)
        store = StoredVectors(self._target)
        assert store.manifest is not None
        self._former = store.manifest
        former = self._former["plan"]
        if self._job.options.shard_rows is None:
            self._plan["options"]["shard_rows"] = former["options"]["shard_rows"]
        # A store that grows for years sees many versions, whose vectors differ in the last bits.
        before = {**former, "versions": self._plan["versions"]}
        refuse_changes(self._target, plan_changes(before, self._plan), AGAIN)
        self._plan["base"] = self._former[DIGEST_KEY]
        self._keys = RowKeys(by_id=store.has_ids, generation=store.generation + 1)
        self._known = KnownRows(store, self._keys)
        if self._id_type is not None and store.has_ids:
            self._id_type.check([next(store.iterate_ids())], 0)
        if self._job.options.keep:
            first = next(read_batches(self._target / shard_name(0, self._job.shard_format), None))
            types = {name: first.schema.field(name).type for name in self._job.options.keep}
            self._kept = KeptColumns(self._job.options.keep, types)
        self._remove_others()
        self._place.mkdir(exist_ok=True)
        super()._begin(stack)

    def _remove_others(self) -> None:
        """Remove the temporary files of an append that this run cannot resume.

        It was of another generation, or had other settings.
        """
        if not self._place.exists():
            return
        if {path.name for path in self._place.iterdir()} - {"delta", "next"}:
            raise OutputError(f"{self._place} is none of encoder-engine's; move it away")
        shutil.rmtree(self._place / "next", ignore_errors=True)
        try:
            begun = Journal(self._folder).plan
        except OutputError:
            begun = None
        if begun is None or differences(begun, self._plan):
            shutil.rmtree(self._place)

    def select(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Return the rows of the inputs to embed: those that are new or have changed."""
        return self._known.unknown(rows)

    def _restart_advice(self) -> str:
        self._stale = True
        return "; run the same command again: it embeds what is new from the start"

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        if self._stale:
            shutil.rmtree(self._place, ignore_errors=True)

    def complete(self, skipped: SkippedRows) -> None:
        """Finish the last shard; if any row changed, replace the folder by the next generation."""
        self._finish_shard()
        self._refuse_shorter()
        changed = self._known.outdated(missing=False)
        outdated = self._known.outdated(missing=self._job.options.delete_missing)
        added = self.num_kept_rows - len(changed)
        dropped = len(outdated) - len(changed)
        counts = {"added": added, "replaced": len(changed), "dropped": dropped}
        self.growth = {"generation": self._former.get("generation", 1), **counts}
        try:
            if any(counts.values()):
                self.growth["generation"] += 1
                self._publish_next(outdated, skipped)
            shutil.rmtree(self._place, ignore_errors=True)
        except OSError as error:
            raise self._failed(error) from error

    def _publish_next(self, outdated: npt.NDArray[np.int64], skipped: SkippedRows) -> None:
        folder = self._place / "next"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        groups = self._groups(outdated)
        if not groups:
            raise OutputError(f"{self._target} would hold no rows; it is left as it is")
        records = [self._write(folder, number, group) for number, group in enumerate(groups)]
        sources = [name for name, _ in self._job.inputs.sources]
        if not self._job.options.delete_missing:  # rows of former inputs are there
            sources = list(dict.fromkeys([*self._former["inputs"], *sources]))
        manifest = {
            "plan": {key: value for key, value in self._plan.items() if key != "base"},
            "model": self._model_name,
            "inputs": sources,
            "skipped_rows": skipped.num_rows,
            "shards": [asdict(record) for record in records],
            "generation": self.growth["generation"],
        }
        for key in ("rows", "tokens", "truncated_rows"):
            manifest[key] = sum(getattr(record, key) for record in records)
        if skipped.num_rows:
            self._state.journal.note_skipped()
            skipped.publish()
            self._link(self._folder / SKIPPED_NAME, folder / SKIPPED_NAME)
        self._link_others(folder)
        write_atomically(folder / MANIFEST_NAME, manifest_content(manifest))
        # Whoever waits for the folder finds a lock in it, held until this run ends.
        lock = self._stack.enter_context(FolderLock(folder))
        exchange_folders(folder, self._target)
        self._lock.exchange(lock)
        sync_directory(self._target.parent)
        self._former = manifest

    def _groups(self, outdated: npt.NDArray[np.int64]) -> list[list[_Piece]]:
        """Return the shards whose kept rows make each shard of the next generation."""
        former = [(self._target, ShardRecord(**shard)) for shard in self._former["shards"]]
        new = [(self._folder, record) for record in self._records]
        groups: list[list[_Piece]] = []
        first_row = 0
        for folder, record in [*former, *new]:
            stays = np.ones(record.rows, np.bool_)
            here = np.searchsorted(outdated, [first_row, first_row + record.rows])
            stays[outdated[slice(*here)] - first_row] = False
            first_row += record.rows
            piece = _Piece(folder=folder, record=record, stays=stays)
            if not piece.num_rows:
                continue
            together = piece.num_rows + sum(p.num_rows for p in (groups[-1] if groups else ()))
            if groups and together <= (self.shard_rows or DEFAULT_SHARD_ROWS):
                groups[-1].append(piece)
            else:
                groups.append([piece])
        return groups

    def _write(self, folder: Path, number: int, pieces: list[_Piece]) -> ShardRecord:
        """Write a shard of the next generation from the kept rows of ``pieces``; return its record.

        A single shard that keeps all its rows is hard-linked.
        """
        names = [*shard_names(number, self._plan["options"]), rows_name(number)]
        first = pieces[0].record
        if len(pieces) == 1 and pieces[0].stays.all():
            for old, new in zip(self._names(first), names, strict=True):
                self._link(pieces[0].folder / old, folder / new)
            files = {n: first.files[o] for o, n in zip(self._names(first), names, strict=True)}
            return replace(first, shard=number, files=files)
        store = self._new_store(folder, number, GROUP_ROWS)
        with store, VectorStore(folder / rows_name(number), overwrite=True) as digests:
            for piece in pieces:
                self._verify_piece(piece)
                self._copy(piece, store)
                digests.append(map_array(piece.folder / rows_name(piece.record.shard))[piece.stays])
        files = {name: file_sha256(folder / name) for name in names}
        return ShardRecord(
            shard=number,
            rows=store.num_rows,
            tokens=sum(piece.record.tokens for piece in pieces),
            truncated_rows=sum(piece.record.truncated_rows for piece in pieces),
            rows_sha256=files[rows_name(number)],
            files=files,
        )

    def _names(self, record: ShardRecord) -> list[str]:
        return [*shard_names(record.shard, self._plan["options"]), rows_name(record.shard)]

    def _verify_piece(self, piece: _Piece) -> None:
        for name, sha256 in piece.record.files.items():
            if file_sha256(piece.folder / name) != sha256:
                raise OutputError(
                    f"{piece.folder / name} is not as it was written: its SHA-256 differs from the "
                    f"recorded one; copy it again, or {AGAIN}"
                )

    def _copy(self, piece: _Piece, store: VectorStore) -> None:
        """Append the rows that a shard keeps to ``store``."""
        path = piece.folder / shard_name(piece.record.shard, self._job.shard_format)
        first_row = 0
        if path.suffix != ".npy":
            for batch in read_batches(path, None):
                stays = piece.stays[first_row : first_row + batch.num_rows]
                store.append_table(_table(batch, stays))
                first_row += batch.num_rows
            return
        ids = list(read_ids(path, None)) if self._keys.by_id else []
        for block in read_blocks(path):
            places = np.flatnonzero(piece.stays[first_row : first_row + len(block)])
            names = [ids[first_row + place] for place in places] if ids else []
            store.append(block[places], names)
            first_row += len(block)

    def _link_others(self, folder: Path) -> None:
        """Hard-link the folder's files that do not belong to the store, such as an index."""
        state = read_folder(self._target)
        for path in self._target.iterdir():
            if path.name in {*state.own, *state.partial, LOCK_NAME}:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, folder / path.name, symlinks=True, copy_function=self._link)
            else:
                self._link(path, folder / path.name)

    @staticmethod
    def _link(source: str | Path, target: str | Path) -> None:
        """Hard-link a file; copy it if the file system has no hard links."""
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(source, target, follow_symlinks=False)


def _table(batch: Any, stays: npt.NDArray[np.bool_]) -> Any:
    """Return the rows of a batch where ``stays`` is True, as a table."""
    import pyarrow

    return pyarrow.Table.from_batches([batch]).filter(pyarrow.array(stays))
