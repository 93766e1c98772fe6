"""A folder of shards that a stopped run resumes, and that ends with a manifest.

How it works: a shard is written under a temporary name, renamed when it is complete, and then
recorded in ``_journal.jsonl`` with its number of rows, the SHA-256 of its files and a digest of the
texts and ids that it was made of. A kill therefore loses one shard at most: 100,000 rows, or 45
seconds of work where ``shard_rows`` is not given. A second run takes the folder's lock, compares
the recorded plan (model, tokenizer, options, versions) with its own, and hashes the recorded files.
Then it reads the inputs from the first row again: rows of recorded shards are only digested and
compared, rows of the others are embedded. A shard whose file is missing is computed again and must
equal its record. The manifest is written last, so a folder with a manifest is complete.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import OutputError, ResumeError
from encoder_engine.files import file_sha256, sync_directory, write_atomically
from encoder_engine.inputs.digest import DIGEST_BYTES, RowKeys, RowsDigest
from encoder_engine.inputs.identifiers import IdentifierType
from encoder_engine.jobs.folder_state import FolderState, read_folder
from encoder_engine.jobs.job import DEFAULT_SHARD_ROWS
from encoder_engine.jobs.kept_columns import KeptColumns
from encoder_engine.jobs.plan import plan_changes
from encoder_engine.locks import refuse_locked
from encoder_engine.records import locked_folder, note_resumed, refuse_changes
from encoder_engine.vectors.manifest import (
    DIGEST_KEY,
    JOURNAL_NAME,
    MANIFEST_NAME,
    SKIPPED_NAME,
    ShardRecord,
    manifest_content,
    rows_name,
    shard_name,
    shard_names,
)
from encoder_engine.vectors.store import VectorStore, remove_partial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from encoder_engine.inputs.rows import Row
    from encoder_engine.jobs.job import DatasetJob
    from encoder_engine.jobs.outputs import SkippedRows
    from encoder_engine.jobs.windows import TextWindow
    from encoder_engine.kinds.windows import EmbeddedWindow

AGAIN = "start again with overwrite=True, or name another output"
# Without `shard_rows` a shard also ends after this time, which bounds what a kill loses.
SHARD_SECONDS = 45.0
# Windows whose size follows the wall time are written in row groups of this fixed size, so that
# the bytes of a table do not depend on the windows.
GROUP_ROWS = 4096


@dataclass
class _OpenShard:
    """The shard that is being filled with rows.

    store: the file that its vectors are written to; None for a shard that an earlier run finished.
    row_digests: the file that its rows' digests are written to.
    whole: whether it ends with a whole window; False while :meth:`ShardFolder.add` appends one.
    """

    number: int
    store: VectorStore | None
    row_digests: VectorStore | None = None
    digest: RowsDigest = field(default_factory=RowsDigest)
    began: float = field(default_factory=time.monotonic)
    rows: int = 0
    tokens: int = 0
    truncated_rows: int = 0
    whole: bool = True


class ShardFolder:
    """An :class:`Output` of shards ``part-00000.npy``, ..., resumed after the last recorded one.

    With ``shard_rows``, every shard but the last has that many rows. Without, a shard ends at
    100,000 rows, after 45 seconds, or where the run is stopped; its record holds its length.
    """

    def __init__(self, job: DatasetJob, plan: dict[str, Any], model_name: str) -> None:
        self._job, self._plan, self._model_name = job, plan, model_name
        self._folder = job.output
        self._stack = ExitStack()
        self._missing: set[int] = set()
        self._open: _OpenShard | None = None
        self._id_type = IdentifierType() if job.shard_format != "npy" else None
        self._keys = RowKeys(by_id=job.options.id_column is not None, generation=1)
        self._kept = KeptColumns(job.options.keep)
        self._num_rows = 0
        self._state: FolderState
        self._records: list[ShardRecord] = []
        self._num_recorded = 0

    @property
    def shard_rows(self) -> int | None:
        """The number of rows of every shard but the last; None: shards differ in length."""
        rows: int | None = self._plan["options"]["shard_rows"]
        return rows

    @property
    def recorded_rows(self) -> list[int]:
        """The number of rows of each shard of earlier runs; [] if ``shard_rows`` is fixed."""
        records = self._records[: self._num_recorded]
        return [] if self.shard_rows is not None else [record.rows for record in records]

    @property
    def skipped_path(self) -> Path:
        """The path of the file that lists skipped rows."""
        return self._folder / SKIPPED_NAME

    @property
    def num_kept_rows(self) -> int:
        """The number of rows of all finished shards, which stay if the run is stopped."""
        return sum(record.rows for record in self._records)

    @property
    def num_truncated_rows(self) -> int:
        """The number of truncated rows of all finished shards."""
        return sum(record.truncated_rows for record in self._records)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def _begin(self, stack: ExitStack) -> None:
        try:
            # A run that is refused here has changed nothing, not even by taking the lock.
            refuse_locked(self._folder)
            before = self._read()
            stack.enter_context(locked_folder(self._folder))
            self._state = self._read(verified=before.records)
            if self._starts_again(self._state):
                self._clear()
            self._take_up()
            for name in self._state.partial:
                remove_partial(self._folder / name)
        except OutputError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _read(self, verified: list[ShardRecord] | None = None) -> FolderState:
        """Read the folder; compare its plan with this run's, and its files with their checksums.

        ``verified``: records whose files were just hashed, and need not be hashed again.
        """
        state = read_folder(self._folder)
        if state.plan is None or self._starts_again(state):
            return state
        if state.manifest is not None and "generation" in state.manifest:
            raise ResumeError(
                f"{self._folder} was appended to, so its rows are not in the order of the inputs; "
                "go on with append=True"
            )
        refuse_changes(self._folder, self._changes(state), AGAIN)
        if state.records != verified:
            self._missing.clear()
            # Hashing releases the GIL: several files at a time.
            with ThreadPoolExecutor() as pool:
                for _ in pool.map(self._verify, state.records):
                    pass
        return state

    def _starts_again(self, state: FolderState) -> bool:
        """Return whether this run (``overwrite``) removes the folder's shards and starts again.

        False for a folder that an overwriting run with the same plan began and did not finish:
        that run is resumed, and a stop loses none of its rows.
        """
        if not self._job.options.overwrite or state.plan is None:
            return False
        return not state.journal.overwriting or bool(self._changes(state))

    def _changes(self, state: FolderState) -> list[str]:
        return plan_changes(state.plan or {}, self._plan)

    def _restart_advice(self) -> str:
        """Return the end of an error message, on how to go on although the folder does not fit.

        If the folder is unfinished, notes in its journal that the next overwriting run starts
        again.
        """
        if self._finished:
            return (
                "; embed what is new and what has changed with append=True, or start "
                "again with overwrite=True"
            )
        try:
            self._state.journal.forget_overwriting()
        except OSError as error:
            raise self._failed(error) from error
        if self._job.options.overwrite:
            return "; run the same command again: it starts again"
        return f"; {AGAIN}"

    def _verify(self, record: ShardRecord) -> None:
        for name, sha256 in record.files.items():
            path = self._folder / name
            if not path.is_file():
                self._missing.add(record.shard)
            elif file_sha256(path) != sha256:
                raise OutputError(
                    f"{path} is not as it was written: its SHA-256 differs from the one recorded; "
                    "remove it, and the same command makes it again"
                )

    def _clear(self) -> None:
        """Remove an earlier run's files; the journal lists them until all are removed."""
        state = self._state
        assert state.plan is not None
        state.journal.begin(state.plan, state.records, skipped=SKIPPED_NAME in state.own)
        # The manifest first: a folder with a manifest is complete.
        if state.manifest is not None:
            (self._folder / MANIFEST_NAME).unlink(missing_ok=True)
        for name in state.own.difference([MANIFEST_NAME, JOURNAL_NAME]):
            (self._folder / name).unlink(missing_ok=True)
        state.journal.begin(self._plan, overwriting=True)
        sync_directory(self._folder)
        self._missing.clear()
        self._state = read_folder(self._folder)

    def _take_up(self) -> None:
        state = self._state
        if state.plan is None:
            state.journal.begin(self._plan, overwriting=self._job.options.overwrite)
        elif state.manifest is None:
            state.journal.go_on()
        self._records = list(state.records)
        self._num_recorded = len(self._records)
        if self._records and not self._finished:
            note_resumed(f"{self.num_kept_rows:,} rows", state.journal.path)

    def select(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Return the rows of the inputs to embed: here all rows."""
        return rows

    @property
    def _finished(self) -> bool:
        return self._state.manifest is not None

    def done(self, shard: int) -> bool:
        """Return whether a shard is recorded and its files exist unchanged."""
        return shard < self._num_recorded and shard not in self._missing

    def add(self, window: TextWindow, embedded: EmbeddedWindow | None) -> None:
        """Append a window of rows to its shard, and finish the shard when it is full.

        embedded: the window's results; None: the shard is finished already.
        """
        number = self._number(window)
        if self._open is None or self._open.number != number:
            self._finish_shard()
            self._open_shard(number)
        shard = self._open
        assert shard is not None
        shard.whole = False
        names = window.present_identifiers
        if self._id_type is not None:
            self._id_type.check(names, window.first_row)
        shard.digest.add(window.texts, window.identifiers)
        kept = self._kept.arrays(window.kept, window.first_row)
        if embedded is not None:
            assert shard.store is not None
            assert shard.row_digests is not None
            shard.store.append(embedded.vectors, names, kept)
            digests = map(self._keys.digest, window.texts, window.sources)
            found = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)
            shard.row_digests.append(found)
            shard.tokens += embedded.num_tokens
            shard.truncated_rows += embedded.num_truncated
        shard.rows += len(window.texts)
        shard.whole = True
        if shard.rows == self.shard_rows or (self._elastic(number) and self._full(shard)):
            self._finish_shard()

    def _elastic(self, number: int) -> bool:
        """Return whether a shard may get any length: it is new, and ``shard_rows`` is not given."""
        return self.shard_rows is None and number >= self._num_recorded

    def _number(self, window: TextWindow) -> int:
        """Return the number of the shard that a window is written to.

        It is the window's own where shards have fixed or recorded lengths. Otherwise windows go to
        the open shard until it is full, then to the next.
        """
        if not self._elastic(window.shard):
            return window.shard
        shard = self._open
        if shard is None or not self._elastic(shard.number):
            return max(len(self._records), self._num_recorded)
        fits = shard.rows + len(window.texts) <= DEFAULT_SHARD_ROWS
        return shard.number if fits else shard.number + 1

    @staticmethod
    def _full(shard: _OpenShard) -> bool:
        late = time.monotonic() - shard.began >= SHARD_SECONDS
        return late or shard.rows >= DEFAULT_SHARD_ROWS

    def _open_shard(self, number: int) -> None:
        if self._finished and number >= self._num_recorded:
            raise ResumeError(
                f"{self._folder} is finished, but the inputs hold more rows than its "
                f"{self._num_rows}{self._restart_advice()}"
            )
        self._open = _OpenShard(number, None)
        if not self.done(number):
            group_rows = GROUP_ROWS if self.shard_rows is None else None
            self._open.store = self._new_store(self._folder, number, group_rows)
            path = self._folder / rows_name(number)
            self._open.row_digests = VectorStore(path, overwrite=True)

    def _new_store(self, folder: Path, number: int, group_rows: int | None) -> VectorStore:
        return VectorStore(
            folder / shard_name(number, self._job.shard_format),
            id_column=self._job.options.id_column,
            overwrite=True,
            group_rows=group_rows,
            kind=self._job.options.task,
        )

    def _finish_shard(self) -> None:
        shard = self._open
        if shard is None:
            return
        before = self._records[shard.number] if shard.number < len(self._records) else None
        rows_sha256 = shard.digest.hexdigest()
        if before is not None and before.rows_sha256 != rows_sha256:
            first = self._num_rows
            change = f"rows {first + 1} to {first + max(shard.rows, before.rows)}"
            raise ResumeError(
                f"the inputs changed: {change} are not those that part-{shard.number:05d} of "
                f"{self._folder} was made of{self._restart_advice()}",
                changes=[change],
            )
        store, shard.store = shard.store, None
        digests, shard.row_digests = shard.row_digests, None
        if store is not None and digests is not None:
            with store, digests:  # the vectors appear last
                pass
            self._record(shard, rows_sha256, before)
        self._num_rows += shard.rows
        self._open = None

    def _record(self, shard: _OpenShard, rows_sha256: str, before: ShardRecord | None) -> None:
        names = [*shard_names(shard.number, self._plan["options"]), rows_name(shard.number)]
        record = ShardRecord(
            shard=shard.number,
            rows=shard.rows,
            tokens=shard.tokens,
            truncated_rows=shard.truncated_rows,
            rows_sha256=rows_sha256,
            files={name: file_sha256(self._folder / name) for name in names},
        )
        if before is None:
            try:
                self._state.journal.add(record)
            except OSError as error:
                raise self._failed(error) from error
            self._records.append(record)
        elif record != before:
            raise ResumeError(
                f"{self._folder / names[0]} was computed again, and its SHA-256 differs from the "
                "recorded one, because the last bits of vectors depend on the batch or the "
                "machine; copy the former file back"
                f"{self._restart_advice()}"
            )
        self._missing.discard(shard.number)

    def complete(self, skipped: SkippedRows) -> None:
        """Finish the last shard, then write the manifest.

        Raises :class:`OutputError` if there is no row, and :class:`ResumeError` if the inputs ended
        before the rows that the folder holds already.
        """
        self._finish_shard()
        if not self._records:
            raise OutputError(f"{self._folder} would hold no rows; nothing is written")
        self._refuse_shorter()
        manifest = {
            "plan": self._plan,
            "model": self._model_name,
            "inputs": [name for name, _ in self._job.inputs.sources],
            "rows": self._num_rows,
            "tokens": sum(record.tokens for record in self._records),
            "truncated_rows": self.num_truncated_rows,
            "skipped_rows": skipped.num_rows,
            "shards": [asdict(record) for record in self._records],
        }
        former = self._state.manifest
        if former is not None and manifest == {k: v for k, v in former.items() if k != DIGEST_KEY}:
            if self._state.journal.plan is not None:
                self._state.journal.remove()
            return
        try:
            self._publish(manifest, skipped)
        except OutputError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _refuse_shorter(self) -> None:
        if self.num_kept_rows != self._num_rows:
            raise ResumeError(
                f"the inputs changed: they end after {self._num_rows} rows, before those that "
                f"{self._folder} holds already{self._restart_advice()}"
            )

    def _publish(self, manifest: dict[str, Any], skipped: SkippedRows) -> None:
        """Write the list of skipped rows, or remove an earlier run's; then write the manifest."""
        journal = self._state.journal
        if journal.plan is None:
            # A finished folder whose manifest changes although its rows do not.
            journal.begin(self._plan, self._records)
        if skipped.num_rows:
            if SKIPPED_NAME not in self._state.own:
                self._refuse_list()
            journal.note_skipped()
            skipped.publish()
        elif SKIPPED_NAME in self._state.own:
            (self._folder / SKIPPED_NAME).unlink(missing_ok=True)
        write_atomically(self._folder / MANIFEST_NAME, manifest_content(manifest))
        journal.remove()

    def _refuse_list(self) -> None:
        path = self._folder / SKIPPED_NAME
        if path.exists() or path.is_symlink():
            raise OutputError(f"{path} was made meanwhile by another process; move it away")

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self._folder} could not be written: {error.strerror or error}; finished shards are "
            "safe: mend the cause, and the same command goes on"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._stack:
            try:
                if kind is not None:
                    self._keep(kind)
            finally:
                opened = self._open
                for store in () if opened is None else (opened.store, opened.row_digests):
                    if store is not None:
                        # Stopped within a shard that cannot end here: partial files are removed.
                        store.__exit__(kind or KeyboardInterrupt, error, traceback)

    def _keep(self, kind: type[BaseException]) -> None:
        """Finish the open shard as it is when the run is stopped, if shards may have any length."""
        shard = self._open
        if shard is None or issubclass(kind, OutputError) or not self._elastic(shard.number):
            return
        if shard.store is not None and shard.whole and shard.rows:
            self._finish_shard()
