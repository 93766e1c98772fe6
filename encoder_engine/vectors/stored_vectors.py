"""Stored vectors, read with verification: every file is compared with its record before use.

How it works: opening a folder reads and verifies its manifest only. Before the first row of a shard
is used, the shard's files are hashed and compared with the SHA-256 in the manifest, 4 files ahead
of the one that is read: about 1 s for a GB. A verified file is not hashed again while its signature
(device, inode, size, mtime and ctime in ns) stays the same; reading a block compares the signature,
so a file that is replaced or written to while it is read raises :class:`ReadError`. A run that
appends hard-links the files into the folder that replaces this one, which changes only their ctime:
such a file is hashed again. Every float block is checked for NaN and infinity.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError, MissingDependencyError, ReadError
from encoder_engine.files import check_apart, check_target, file_sha256
from encoder_engine.inputs.columnar import import_pyarrow
from encoder_engine.vectors.columns import VECTOR_COLUMN
from encoder_engine.vectors.manifest import JOURNAL_NAME, MANIFEST_NAME, SKIPPED_NAME, read_manifest
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse
from encoder_engine.vectors.store import ENDINGS, ids_path
from encoder_engine.vectors.store_files import (
    Part,
    has_ids,
    kept_of_file,
    kept_values,
    kind_of_file,
    map_array,
    read_blocks,
    read_ids,
    read_results,
    refuse_non_finite,
    shards_of,
    signature,
    vocabulary_of_file,
)
from encoder_engine.vectors.token_vectors import TokenVectors, join_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    import numpy.typing as npt

    from encoder_engine.inputs.identifiers import Identifier
    from encoder_engine.vectors.columns import Kind

Array = np.ndarray[Any, np.dtype[Any]]

# Hashing releases the GIL; more files at a time would only wait for the disk.
_MOST_HASHED = 4
_ID_COLUMN = "id"
# The attribute that holds the numbers of results that are not arrays.
_NUMBERS = {"sparse": "values", "tokens": "vectors"}


class StoredVectors:
    """Vectors that ``embed`` wrote: a file, or a finished folder of shards.

    :func:`load_vectors` opens one.

    path: the file or the folder.
    manifest: the folder's record of model, options, inputs and files; None for a file.

    Every file of a folder is compared with the SHA-256 in the manifest before its first use. For a
    single file the shape, the number of ids and the absence of NaN and infinity are checked. Raises
    :class:`ReadError` for a file that was changed or damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = True) -> None:
        self.path = Path(path)
        self.manifest: dict[str, Any] | None = None
        self._verify = verify
        self._verified: dict[Path, tuple[int, ...]] = {}
        if self.path.is_dir():
            self.manifest = read_manifest(self.path, ReadError)
            if self.manifest is None:
                raise ReadError(
                    f"{self.path} has no {MANIFEST_NAME}, so it is not whole; run embed again, "
                    "which resumes after the last finished shard"
                )
            self._parts = shards_of(self.path, self.manifest)
        else:
            self._parts = [Part(path=self.path, checksums={})]
        for part in self._parts:
            if not part.path.is_file() or part.path.suffix not in ENDINGS:
                raise ReadError(f"{part.path} is not a file of vectors ({', '.join(ENDINGS)})")

    def __repr__(self) -> str:
        return f"StoredVectors({str(self.path)!r})"

    def __len__(self) -> int:
        return self.rows

    @cached_property
    def rows(self) -> int:
        """The number of rows: of vectors, or of texts with sparse vectors or token vectors."""
        if self.manifest is not None:
            return int(self.manifest["rows"])
        results = self._results(self.kind) if self.kind in _NUMBERS else self.blocks()
        return sum(map(len, results))

    @cached_property
    def dimension(self) -> int:
        """The number of features of a dense vector, D."""
        return len(self.first)

    @property
    def first(self) -> Array:
        """The first dense vector, [D]; only the first file is read."""
        part = self._parts[0]
        self._check(part, [part.path])
        for block in read_blocks(part.path):
            if len(block):
                vector: Array = block[0]
                return vector
        raise ReadError(f"{part.path} holds no vectors; embed again")

    @cached_property
    def vectors(self) -> Array:
        """All vectors, [N, D], read-only: mapped if they are one .npy file, else in memory.

        :meth:`blocks` and :meth:`take` need memory for a part of the vectors only.
        """
        path = self._path_of_one
        if len(self._parts) == 1 and path.suffix == ".npy":
            before = signature(path)
            for _ in self.blocks():  # compares every block of it
                pass
            mapped = map_array(path)
            self._refuse_changed(self._parts[0], before)
            return mapped
        found = np.concatenate(list(self.blocks()))
        found.flags.writeable = False
        return found

    @property
    def _path_of_one(self) -> Path:
        """The path of the first file of vectors; a store that is a single file has no other."""
        return self._parts[0].path

    @cached_property
    def ids(self) -> list[Identifier] | None:
        """The ids in the order of the rows; None where the store has no ids."""
        if not self.has_ids:
            return None
        found = list(chain.from_iterable(map(self._ids_of, self._parts)))
        if len(found) != self.rows:
            raise ReadError(
                f"{self.path} has {self.rows} vectors and {len(found)} ids; copy both again"
            )
        return found

    @property
    def has_ids(self) -> bool:
        """Whether rows have ids."""
        if self.manifest is not None:
            return self._id_column is not None
        return has_ids(self._path_of_one)

    @property
    def _id_column(self) -> str | None:
        column: str | None = None
        if self.manifest is not None:
            column = self.manifest["plan"]["options"]["id_column"]
        return column

    @cached_property
    def kind(self) -> Kind:
        """The kind of the results, such as ``"sparse"``; a single .npy file counts as dense."""
        if self.manifest is None:
            return kind_of_file(self._path_of_one)
        kind: Kind = self.manifest["plan"]["options"].get("task", "dense")
        return kind

    @cached_property
    def sparse(self) -> SparseVectors:
        """All sparse vectors. Raises :class:`InputError` for a store of another kind."""
        parts = list(self._results("sparse"))
        size = self._stated_dimension or max(part.dimension for part in parts)
        return join_sparse(parts, size)

    @cached_property
    def tokens(self) -> TokenVectors:
        """The vectors of all tokens. Raises :class:`InputError` for a store of another kind."""
        parts = list(self._results("tokens"))
        return join_tokens(parts, parts[0].vectors.shape[1])

    @cached_property
    def scores(self) -> npt.NDArray[np.float32]:
        """All scores, [N], or [N, C] of a model with several labels.

        Raises :class:`InputError` for a store of another kind.
        """
        scores = np.concatenate(list(self._results("scores")))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @cached_property
    def _stated_dimension(self) -> int | None:
        if self.manifest is None:
            return vocabulary_of_file(self._path_of_one) if self.kind == "sparse" else None
        return int(self.manifest["plan"]["options"]["dimension"])

    def _results(self, kind: Kind) -> Iterator[Any]:
        """Yield the results of a store of this kind in order, some thousand rows at a time.

        Each file is first compared with its checksum.
        """
        is_array = self.manifest is None and self._path_of_one.suffix == ".npy"
        if self.kind != kind and not (is_array and kind == "scores"):
            raise InputError(f"{self.path} holds {self.kind} results, not {kind}")
        for part in self._checked_parts():
            before, num_rows = self._begin(part.path), 0
            for rows in read_results(part.path, kind, self._stated_dimension):
                before = self._refuse_changed(part, before)
                numbers = rows if kind == "scores" else getattr(rows, _NUMBERS[kind])
                refuse_non_finite(numbers.reshape(len(numbers), -1), part.path, num_rows)
                num_rows += len(rows)
                yield rows
            self._refuse_changed(part, before)
            if part.rows not in (None, num_rows):
                raise ReadError(f"{part.path} holds {num_rows} rows, {part.rows} were recorded")

    def blocks(self) -> Iterator[Array]:
        """Yield the vectors in order, some thousand rows [n, D] at a time.

        While one file is read, the next ones are compared with their checksums. Raises
        :class:`InputError` for sparse vectors and vectors of tokens.
        """
        if self.kind in _NUMBERS:
            raise InputError(
                f"{self.path} holds {self.kind} results, which are not vectors [N, D]; read them "
                f"by .{self.kind}"
            )
        if self.kind == "scores":
            yield from self._results("scores")
            return
        shape: tuple[int, np.dtype[Any]] | None = None
        total = 0
        for part in self._checked_parts():
            before, num_rows = self._begin(part.path), 0
            for block in read_blocks(part.path):
                before = self._refuse_changed(part, before)
                if shape is None:
                    shape = block.shape[1], block.dtype
                if (block.shape[1], block.dtype) != shape:
                    raise ReadError(
                        f"{part.path} holds vectors of {block.shape[1]} {block.dtype}, those "
                        f"before have {shape[0]} {shape[1]}; copy the folder again"
                    )
                refuse_non_finite(block, part.path, num_rows)
                num_rows += len(block)
                yield block
            self._refuse_changed(part, before)
            if part.rows not in (None, num_rows):
                raise ReadError(f"{part.path} holds {num_rows} rows, {part.rows} were recorded")
            if num_rows == 0:
                raise ReadError(f"{part.path} holds no vectors; embed again")
            total += num_rows
        # A single file has no record of its number of rows.
        self.__dict__.setdefault("rows", total)

    def float_blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the vectors in blocks. Raises :class:`InputError` unless they are float32."""
        for block in self.blocks():
            if block.dtype in (np.int8, np.uint8):
                raise InputError(
                    f"{self.path} holds {block.dtype}: vectors stored in bits have no dot products "
                    "and no plane; embed with precision='float32'"
                )
            if block.dtype != np.float32:
                raise InputError(f"{self.path} holds {block.dtype}; cast the vectors to float32")
            yield block

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return copies of some rows, given in ascending order: float32 [n, D].

        Raises :class:`InputError` for rows in another order and for rows that the store lacks.
        """
        rows = np.asarray(rows if len(rows) else np.zeros(0, np.int64))
        taken, first_row = [], 0
        if rows.dtype.kind not in "iu" or rows.ndim != 1 or (rows[1:] < rows[:-1]).any():
            raise InputError("rows must be whole numbers [n] in ascending order")
        for block in self.float_blocks():
            start, stop = np.searchsorted(rows, [first_row, first_row + len(block)])
            taken.append(block[rows[start:stop] - first_row])
            first_row += len(block)
        if len(rows) and not 0 <= rows[0] <= rows[-1] < first_row:
            wrong = int(rows[0] if rows[0] < 0 else rows[-1])
            raise InputError(f"{self.path} has no row {wrong}, it has {first_row} rows", row=wrong)
        return np.concatenate(taken)

    def identifiers(self, rows: set[int]) -> dict[int, Identifier]:
        """Return the ids of some rows by row; empty where the store has no ids.

        Of a folder, only the shards of these rows are read.
        """
        if not self.has_ids:
            return {}
        if self.manifest is None:
            all_ids = self.ids or []
            return {row: all_ids[row] for row in rows}
        found: dict[int, Identifier] = {}
        first_row = 0
        for part in self._parts:
            assert part.rows is not None
            here = {row for row in rows if first_row <= row < first_row + part.rows}
            if here:
                ids = enumerate(self._ids_of(part), start=first_row)
                found.update((row, name) for row, name in ids if row in here)
            first_row += part.rows
        return found

    def _ids_of(self, part: Part) -> Iterator[Identifier]:
        """Yield a file's ids; only after the last, without an error, are they known to be right.

        Raises :class:`ReadError` where ids and rows differ in number, or the file was changed.
        """
        path = ids_path(part.path) if part.path.suffix == ".npy" else part.path
        self._check(part, [path])
        before, num_ids = self._begin(path), 0
        for name in read_ids(part.path, self._id_column):
            num_ids += 1
            yield name
        self._refuse_changed(part, before, path)
        if part.rows not in (None, num_ids):
            raise ReadError(f"{part.path} has {part.rows} rows and {num_ids} ids; copy both again")

    def _checked_parts(self) -> Iterator[Part]:
        """Yield the store's files in order, once verified; up to 4 are verified ahead."""
        threads = min(_MOST_HASHED, os.cpu_count() or 1)
        with ThreadPoolExecutor(max_workers=threads) as pool:
            rest = iter(self._parts)
            waiting: deque[tuple[Part, Future[None]]] = deque()
            waiting.extend((p, pool.submit(self._check, p)) for p in islice(rest, threads))
            while waiting:
                part, checked = waiting.popleft()
                checked.result()
                waiting.extend((p, pool.submit(self._check, p)) for p in islice(rest, 1))
                yield part

    def _check(self, part: Part, paths: Iterable[Path] | None = None) -> None:
        """Compare a file and its file of ids, or only ``paths`` of these, with their checksums."""
        for path, sha256 in part.checksums.items() if self._verify else ():
            if paths is not None and path not in paths:
                continue
            try:
                before = signature(path)
                if self._verified.get(path) == before:
                    continue
                found = file_sha256(path)
                after = signature(path)
            except ReadError:
                self._refuse_another_generation()
                raise
            except OSError as error:
                self._refuse_another_generation()
                reason = error.strerror or error
                raise ReadError(f"{path} cannot be read: {reason}; copy it again") from error
            if found != sha256 or after != before:
                self._refuse_another_generation()
                raise ReadError(
                    f"{path} is not as it was written: its SHA-256 is {found[:12]}..., "
                    f"{sha256[:12]}... was recorded; copy it again, or remove it and run embed "
                    "again, which makes it again"
                )
            self._verified[path] = before

    def _refuse_changed(
        self, part: Part, before: tuple[int, ...], path: Path | None = None
    ) -> tuple[int, ...]:
        """Return the present signature of a file; raises :class:`ReadError` if its content changed.

        ``before``: an earlier signature of the file. If only the ctime differs, the file is hashed.
        ``path``: the file of vectors or of ids; None: the file of vectors.
        """
        path = path or part.path
        now = signature(path)
        if now != before:
            sha256 = part.checksums.get(path)
            if now[:-1] != before[:-1] or sha256 is None or file_sha256(path) != sha256:
                raise ReadError(f"{path} was changed while it was read; run this again")
            self._verified[path] = now
        return now

    def _begin(self, path: Path) -> tuple[int, ...]:
        """Return the signature that a file had when it was verified, or else the present one."""
        return self._verified.get(path) or signature(path)

    def _refuse_another_generation(self) -> None:
        """Raise :class:`ReadError` if a run has appended to the folder since it was opened."""
        now = read_manifest(self.path, ReadError)
        if now is not None and now != self.manifest:
            raise ReadError(f"{self.path} was written to since it was opened; open it again")

    @property
    def generation(self) -> int:
        """The number of runs that wrote the folder: 1, plus 1 for each run that appended."""
        return 1 if self.manifest is None else int(self.manifest.get("generation", 1))

    def iterate_ids(self) -> Iterator[Identifier]:
        """Yield the ids in the order of the rows."""
        return chain.from_iterable(map(self._ids_of, self._parts))

    def kept(self, rows: set[int]) -> dict[int, dict[str, Any]]:
        """Return the values of kept input columns for some rows: by row, then by column name."""
        if self.manifest is None:
            names = kept_of_file(self._path_of_one)
        else:
            names = self.manifest["plan"]["options"].get("keep", [])
        found: dict[int, dict[str, Any]] = {}
        first_row = 0
        for part in self._parts if names else ():
            if any(first_row <= row < first_row + (part.rows or row + 1) for row in rows):
                self._check(part, [part.path])
                found |= kept_values(part.path, names, rows, first_row)
            first_row += part.rows or 0
        return found

    def digest(self) -> str:
        """Return a SHA-256 that identifies the store's vectors.

        A folder's digest is computed from its manifest, without reading vectors.
        """
        import hashlib

        sums = [
            part.checksums[part.path] if part.checksums else file_sha256(part.path)
            for part in self._parts
        ]
        return hashlib.sha256("\n".join(sums).encode("ascii")).hexdigest()

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of the ids, if any, and ``embedding``.

        The column of ids has its recorded name, or ``id``. The vectors are fixed-size lists and not
        copied again.
        """
        pyarrow = import_pyarrow("a table")
        vectors = self.vectors
        flat = pyarrow.array(np.ascontiguousarray(vectors).reshape(-1))
        columns = {VECTOR_COLUMN: pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])}
        if self.ids is not None:
            columns = {self._id_column or _ID_COLUMN: pyarrow.array(self.ids), **columns}
        return pyarrow.table(columns)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` of the ids, if any, and ``embedding``.

        Each value of ``embedding`` is an array [D], a view of :attr:`vectors`.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MissingDependencyError("a DataFrame", library="pandas") from None
        columns: dict[str, Any] = {VECTOR_COLUMN: list(self.vectors)}
        if self.ids is not None:
            columns = {self._id_column or _ID_COLUMN: self.ids, **columns}
        return pandas.DataFrame(columns)

    def check_target(self, target: Path, inputs: Iterable[str] = (), *, overwrite: bool) -> None:
        """Raise :class:`OutputError` for a target that must not be written.

        A target may be no file of the store, no input that it was made of, and none of ``inputs``.
        """
        own = [part.path for part in self._parts]
        own += [ids_path(path) for path in own]
        named = [] if self.manifest is None else self.manifest["inputs"]
        if self.manifest is not None:
            records = (MANIFEST_NAME, SKIPPED_NAME, JOURNAL_NAME)
            own += [self.path / name for name in records]
        check_apart([target], [*own, *map(Path, [*named, *inputs])])
        check_target(target, overwrite=overwrite)


def load_vectors(path: str | os.PathLike[str], *, verify: bool = True) -> StoredVectors:
    """Open vectors that ``embed`` wrote: a file, or a finished folder of shards.

    ::

        stored = ee.load_vectors("vectors/")
        stored.vectors, stored.ids, stored.rows, stored.manifest

    ``verify=False`` skips the comparison with the manifest's checksums, which takes about 1 s for a
    GB and runs in parallel for several files. Raises :class:`ReadError` for a path that is not a
    file or folder of vectors, and for changed or damaged files.
    """
    return StoredVectors(path, verify=verify)
