"""A folder of shards: each whole under its name, journalled, and a manifest when all are there."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from encoder_engine.embedding.dataset.journal import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    Journal,
    ShardRecord,
    describe_changes,
    read_manifest,
)
from encoder_engine.embedding.dataset.plan import RowsDigest
from encoder_engine.embedding.identifiers import IdentifierType
from encoder_engine.embedding.store import VectorStore, ids_path, remove_partial
from encoder_engine.errors import OutputError, ResumeError
from encoder_engine.files import (
    LOCK_NAME,
    FolderLock,
    file_sha256,
    sync_directory,
    write_atomically,
)

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from encoder_engine.embedding.dataset.job import DatasetJob
    from encoder_engine.embedding.dataset.outputs import SkippedRows
    from encoder_engine.embedding.dataset.windows import TextWindow
    from encoder_engine.embedding.window import EmbeddedWindow

_SHARD_NAME = re.compile(r"part-\d{5,}\.(npy|ids\.txt|parquet|arrow|lance)")
_PARTIAL_NAME = re.compile(
    r"(part-\d{5,}\..+|(manifest|journal|skipped)\.jsonl?)\.[0-9a-f]{8}(\.scratch)?\.partial"
)
_AGAIN = "; start again with overwriting (--overwrite), or name another output"


@dataclass
class _OpenShard:
    """The shard whose windows are coming; ``store`` is None where it is finished already."""

    number: int
    store: VectorStore | None
    digest: RowsDigest = field(default_factory=RowsDigest)
    rows: int = 0
    tokens: int = 0
    truncated_rows: int = 0


class ShardFolder:
    """Writes shards ``part-00000.npy``, ... and goes on where a run before was cut off."""

    def __init__(self, job: DatasetJob, plan: dict[str, Any], model_name: str) -> None:
        self._job, self._plan, self._model_name = job, plan, model_name
        self._folder = job.output
        self._stack = ExitStack()
        self._manifest_path = self._folder / MANIFEST_NAME
        self._finished = False
        self._missing: set[int] = set()
        self._open: _OpenShard | None = None
        self._id_type = IdentifierType() if job.shard_format != "npy" else None
        self._num_rows = 0
        self._journal: Journal

    @property
    def records(self) -> list[ShardRecord]:
        """The finished shards, in their order."""
        return [self._journal.records[shard] for shard in sorted(self._journal.records)]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def _begin(self, stack: ExitStack) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
            stack.enter_context(FolderLock(self._folder))
            if self._job.options.overwrite:
                self._clear()
            self._resume()
            # Only now is the folder known to be one of ours.
            for path in self._folder.iterdir():
                if _PARTIAL_NAME.fullmatch(path.name):
                    remove_partial(path)
        except OutputError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _clear(self) -> None:
        """Remove what a run before left, its manifest first: a folder with one is whole."""
        self._manifest_path.unlink(missing_ok=True)
        for path in self._folder.iterdir():
            if _SHARD_NAME.fullmatch(path.name):
                path.unlink()
        (self._folder / JOURNAL_NAME).unlink(missing_ok=True)
        self._job.skipped_path.unlink(missing_ok=True)
        sync_directory(self._folder)

    def _resume(self) -> None:
        """Take up what is there. Raises :class:`ResumeError` where it was begun otherwise."""
        self._journal = Journal(self._folder / JOURNAL_NAME)
        manifest = read_manifest(self._manifest_path)
        self._finished = manifest is not None
        if manifest is not None:
            self._journal.plan = manifest["plan"]
            records = [ShardRecord(**value) for value in manifest["shards"]]
            self._journal.records = {record.shard: record for record in records}
        if self._journal.plan is None:
            names = {path.name for path in self._folder.iterdir()} - {LOCK_NAME, JOURNAL_NAME}
            others = {name for name in names if not _PARTIAL_NAME.fullmatch(name)}
            if others:
                raise OutputError(
                    f"{self._folder} holds other files ({', '.join(sorted(others)[:3])}, ...); "
                    "name a new folder, or an empty one"
                )
            self._journal.begin(self._plan)
            return
        changes = describe_changes(self._journal.plan, self._plan)
        if changes:
            raise ResumeError(
                f"{self._folder} was begun otherwise: {'; '.join(changes)}{_AGAIN}", changes=changes
            )
        # Hashing holds no lock of the interpreter: several files at a time.
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(self._verify, self.records):
                pass

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

    def done(self, shard: int) -> bool:
        """Say whether a shard's files are there, as they were recorded."""
        return shard in self._journal.records and shard not in self._missing

    def add(self, window: TextWindow, embedded: EmbeddedWindow | None) -> None:
        """Take a window; the one that fills a shard finishes it."""
        if self._open is None or self._open.number != window.shard:
            self._finish_shard()
            self._open_shard(window.shard)
        shard = self._open
        assert shard is not None
        shard.digest.add(window.texts, window.identifiers)
        names = window.present_identifiers
        if self._id_type is not None:
            self._id_type.check(names, window.first_row)
        if embedded is not None:
            assert shard.store is not None
            shard.store.append(embedded.vectors, names)
            shard.tokens += embedded.num_tokens
            shard.truncated_rows += embedded.num_truncated
        shard.rows += len(window.texts)
        if shard.rows == self._job.shard_rows:
            self._finish_shard()

    def _open_shard(self, number: int) -> None:
        if self._finished and number not in self._journal.records:
            raise ResumeError(
                f"{self._folder} is finished, but the inputs hold more rows than its "
                f"{self._num_rows}{_AGAIN}"
            )
        store = None
        if not self.done(number):
            store = VectorStore(
                self._folder / f"part-{number:05d}.{self._job.shard_format}",
                id_column=self._job.options.id_column,
                overwrite=True,
            )
        self._open = _OpenShard(number, store)

    def _finish_shard(self) -> None:
        shard = self._open
        if shard is None:
            return
        before = self._journal.records.get(shard.number)
        rows_sha256 = shard.digest.hexdigest()
        if before is not None and before.rows_sha256 != rows_sha256:
            first = self._num_rows
            change = f"rows {first + 1} to {first + max(shard.rows, before.rows)}"
            raise ResumeError(
                f"the inputs changed: {change} are not those that part-{shard.number:05d} of "
                f"{self._folder} was made of; restore them{_AGAIN}",
                changes=[change],
            )
        if shard.store is not None:
            shard.store.__exit__(None, None, None)
            self._record(shard, rows_sha256, before)
        self._num_rows += shard.rows
        self._open = None

    def _record(self, shard: _OpenShard, rows_sha256: str, before: ShardRecord | None) -> None:
        path = self._folder / f"part-{shard.number:05d}.{self._job.shard_format}"
        paths = [path]
        if path.suffix == ".npy" and self._job.options.id_column is not None:
            paths.append(ids_path(path))
        record = ShardRecord(
            shard=shard.number,
            rows=shard.rows,
            tokens=shard.tokens,
            truncated_rows=shard.truncated_rows,
            rows_sha256=rows_sha256,
            files={file.name: file_sha256(file) for file in paths},
        )
        if before is None:
            try:
                self._journal.add(record)
            except OSError as error:
                raise self._failed(error) from error
        elif record != before:
            raise ResumeError(
                f"{path} was made again, and differs from its record: this machine computes other "
                f"bits than the one before{_AGAIN}"
            )
        self._missing.discard(shard.number)

    def complete(self, skipped: SkippedRows) -> None:
        """Finish the last shard, then write the manifest, last of all."""
        self._finish_shard()
        records = self.records
        if not records:
            raise OutputError(f"{self._folder} would hold no rows; nothing is written")
        if sum(record.rows for record in records) != self._num_rows:
            raise ResumeError(
                f"the inputs changed: they end after {self._num_rows} rows, before those that "
                f"{self._folder} holds already; restore them{_AGAIN}"
            )
        manifest = {
            "plan": self._plan,
            "model": self._model_name,
            "inputs": [name for name, _ in self._job.inputs.sources],
            "rows": self._num_rows,
            "tokens": sum(record.tokens for record in records),
            "truncated_rows": sum(record.truncated_rows for record in records),
            "skipped_rows": skipped.num_rows,
            "shards": [asdict(record) for record in records],
        }
        content = (json.dumps(manifest, indent=1) + "\n").encode("ascii")
        skipped.publish()
        try:
            if not self._finished or self._manifest_path.read_bytes() != content:
                write_atomically(self._manifest_path, content)
            self._journal.remove()
        except OutputError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self._folder} could not be written: {error.strerror or error}; what is finished is "
            "safe: mend it, and the same command goes on"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._open is not None and self._open.store is not None:
            # Cut off within a shard: what was written of it goes.
            self._open.store.__exit__(kind or KeyboardInterrupt, error, traceback)
        self._stack.__exit__(kind, error, traceback)


def shard_paths(folder: Path, manifest: dict[str, Any]) -> list[Path]:
    """List the files of vectors of a finished folder, in the order of their rows."""
    suffix = f".{manifest['plan']['options']['shard_format']}"
    names = [name for shard in manifest["shards"] for name in shard["files"]]
    return [folder / name for name in names if name.endswith(suffix)]
