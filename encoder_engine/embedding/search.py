"""Exact search over stored vectors: block by block, mapped into memory where the format allows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.columnar import import_lance, import_pyarrow
from encoder_engine.embedding.dataset.folder import shard_paths
from encoder_engine.embedding.dataset.journal import MANIFEST_NAME, read_manifest
from encoder_engine.embedding.store import ENDINGS, VECTOR_COLUMN, ids_path
from encoder_engine.errors import InputError, ReadError, ShapeError
from encoder_engine.files import check_apart, check_target

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from encoder_engine.embedding.rows import Identifier

# 25 MB of 384 features: the scores of a block stay small beside it.
_BLOCK_ROWS = 16_384


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A stored row near a query: its number from 0, its id if the store has some, its score."""

    row: int
    identifier: Identifier | None
    score: float


class StoredVectors:
    """What ``embed`` wrote: a file of vectors, or a finished folder of shards.

    ``manifest``: a folder's, else None. Raises :class:`ReadError` for what is none of these.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest: dict[str, Any] | None = None
        if self.path.is_dir():
            self.manifest = read_manifest(self.path / MANIFEST_NAME)
            if self.manifest is None:
                raise ReadError(
                    f"{self.path} has no {MANIFEST_NAME}, so it is not whole; run embed again, "
                    "which goes on where it was cut off"
                )
            self._files = shard_paths(self.path, self.manifest)
        else:
            self._files = [self.path]
        for file in self._files:
            if not file.is_file() or file.suffix not in ENDINGS:
                raise ReadError(f"{file} is no file of vectors ({', '.join(ENDINGS)})")

    def check_target(self, target: Path, inputs: Iterable[str] = (), *, overwrite: bool) -> None:
        """Raise :class:`OutputError` for a file that may not be written.

        Nor may one of the store's own, or of the ``inputs`` that it was made of.
        """
        own = [*self._files, *(ids_path(file) for file in self._files)]
        named = [] if self.manifest is None else self.manifest["inputs"]
        if self.manifest is not None:
            own += [self.path / MANIFEST_NAME, self.path / "skipped.jsonl"]
        check_apart([target], [*own, *map(Path, [*named, *inputs])])
        check_target(target, overwrite=overwrite)

    def blocks(self) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
        """Yield the vectors, some thousand rows [n, D] at a time."""
        for file in self._files:
            try:
                if file.suffix == ".npy":
                    stored = np.load(file, mmap_mode="r")
                    if stored.ndim != 2:
                        shape = list(stored.shape)
                        raise ShapeError(f"{file} must hold rows of vectors [N, D], got {shape}")
                    for start in range(0, len(stored), _BLOCK_ROWS):
                        yield stored[start : start + _BLOCK_ROWS]
                else:
                    for batch in _batches(file, [VECTOR_COLUMN]):
                        column = batch.column(VECTOR_COLUMN)
                        yield column.flatten().to_numpy().reshape(len(column), -1)
            except ShapeError:
                raise
            except (OSError, ValueError, KeyError) as error:
                raise ReadError(f"{file} is damaged: {error}; check its SHA-256") from error

    def float_blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the vectors. Raises :class:`InputError` where they are stored in bits."""
        for block in self.blocks():
            if block.dtype != np.float32:
                raise InputError(
                    f"{self.path} holds {block.dtype}, not float32: vectors stored in bits have no "
                    "dot products; embed with --precision float32"
                )
            yield block

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Copy some rows, which ascend: float32 [n, D]."""
        taken, first_row = [], 0
        for block in self.float_blocks():
            start, stop = np.searchsorted(rows, [first_row, first_row + len(block)])
            taken.append(block[rows[start:stop] - first_row])
            first_row += len(block)
        return np.concatenate(taken)

    def count_rows(self) -> int:
        """Count the vectors."""
        return sum(len(block) for block in self.blocks())

    def identifiers(self, rows: set[int]) -> dict[int, Identifier]:
        """Look up the ids of some rows; none where the store has no ids."""
        found: dict[int, Identifier] = {}
        first_row = 0
        for file in self._files:
            for name in _identifiers(file):
                if first_row in rows:
                    found[first_row] = name
                first_row += 1
        return found


def _batches(file: Path, columns: list[str] | None) -> Iterator[Any]:
    pyarrow = import_pyarrow(f"reading {file.name}")
    if file.suffix == ".parquet":
        with pyarrow.parquet.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(batch_size=_BLOCK_ROWS, columns=columns)
        return
    if file.suffix == ".lance":
        lance = import_lance(f"reading {file.name}")
        yield from (
            lance.LanceFileReader(str(file), columns=columns)
            .read_all(batch_size=_BLOCK_ROWS)
            .to_batches()
        )
        return
    from pyarrow import ipc

    with pyarrow.memory_map(str(file)) as source:
        stored = ipc.open_file(source)
        for index in range(stored.num_record_batches):
            yield stored.get_batch(index)


def _identifiers(file: Path) -> Iterator[Identifier]:
    if file.suffix == ".npy":
        if ids_path(file).exists():
            with ids_path(file).open(encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    yield line.removesuffix("\n")
        return
    for batch in _batches(file, None):
        names = [name for name in batch.schema.names if name != VECTOR_COLUMN]
        if names:
            yield from batch.column(names[0]).to_pylist()


def search_vectors(
    store: StoredVectors, queries_QD: npt.NDArray[np.float32], num_hits: int
) -> list[list[Hit]]:
    """Return each query's rows of the greatest dot products, the greatest first: exactly.

    ``queries_QD``: float32 [Q, D]. Equal scores come in the order of their rows. Memory holds one
    block of the store at a time. Raises :class:`InputError` for vectors stored in bits and
    :class:`ShapeError` for queries of another width.
    """
    if num_hits < 1:
        raise InputError(f"num_hits must be at least 1, got {num_hits}")
    best_scores = np.empty((len(queries_QD), 0), np.float32)
    best_rows = np.empty((len(queries_QD), 0), np.int64)
    first_row = 0
    for block_ND in store.float_blocks():
        if block_ND.shape[1] != queries_QD.shape[1]:
            raise ShapeError(
                f"{store.path} holds vectors of {block_ND.shape[1]} features, the queries have "
                f"{queries_QD.shape[1]}; use the model and options it was made with"
            )
        rows = np.arange(first_row, first_row + len(block_ND))
        scores = np.concatenate([best_scores, queries_QD @ block_ND.T], axis=1)
        rows_QN = np.concatenate([best_rows, np.tile(rows, (len(queries_QD), 1))], axis=1)
        # What was found before stands first, so a stable sort keeps rows of equal scores in order.
        order = np.argsort(-scores, axis=1, kind="stable")[:, :num_hits]
        best_scores = np.take_along_axis(scores, order, axis=1)
        best_rows = np.take_along_axis(rows_QN, order, axis=1)
        first_row += len(block_ND)
    names = store.identifiers(set(best_rows.reshape(-1).tolist()))
    return [
        [
            Hit(row=int(row), identifier=names.get(int(row)), score=float(score))
            for row, score in zip(rows_K, scores_K, strict=True)
        ]
        for rows_K, scores_K in zip(best_rows, best_scores, strict=True)
    ]
