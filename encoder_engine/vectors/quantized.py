"""Quantized copies of a store, a quarter or a 32nd of its size, for search with rescoring.

How it works: ``int8`` divides each feature's range over the store into 255 steps; ``ubinary`` keeps
the sign. A copy is one .npy file and a record beside it: the ranges, the SHA-256 of the file and
the digest of the store. A search scores all rows of the copy, takes ``oversampling`` times as many
candidates as hits, and scores these again by the store's float vectors. Candidates in a copy of
bits are the nearest by Hamming distance; the dot product of the query with the signs decides
between equal distances.

Dimensions: Q queries, N rows, D features, K candidates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, ReadError, ShapeError
from encoder_engine.files import check_target, file_sha256, write_atomically
from encoder_engine.json_values import JsonValue, read_value
from encoder_engine.vectors.hits import check_num_hits
from encoder_engine.vectors.precision import quantize_vectors
from encoder_engine.vectors.search import check_queries, keep_best, make_hits, no_hits, query_parts
from encoder_engine.vectors.store import VectorStore
from encoder_engine.vectors.store_files import read_blocks

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import numpy.typing as npt

    from encoder_engine.vectors.hits import Hit
    from encoder_engine.vectors.stored_vectors import StoredVectors

__all__ = ["QuantizedCopy", "load_copy", "search_copy", "write_copy"]

CopyPrecision = Literal["int8", "ubinary"]
COPY_PRECISIONS: tuple[CopyPrecision, ...] = get_args(CopyPrecision)
# The ratio of candidates to hits; it is also that of sentence-transformers.
DEFAULT_OVERSAMPLING = 4
_RECORD = ".quantized.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedCopy:
    """A quantized copy of a store; its checksum and its store's digest have been verified.

    ranges: float32 [2, D], the least and the greatest value of each feature; None for bits.
    dimension: features of the store's vectors, D.
    """

    path: Path
    precision: CopyPrecision
    rows: int
    dimension: int
    ranges: npt.NDArray[np.float32] | None


def record_of(path: Path) -> Path:
    """Return the path of the record of a copy: ``v.npy`` has ``v.quantized.json``."""
    return path.with_suffix(_RECORD)


def write_copy(
    store: StoredVectors,
    path: str | os.PathLike[str],
    precision: CopyPrecision = "int8",
    *,
    overwrite: bool = False,
) -> QuantizedCopy:
    """Write a quantized copy of a store of float32 vectors, in constant memory.

    path: a .npy file. int8 reads the store twice, for the ranges and for the rows. Raises
    :class:`InputError` for other vectors and for a path that does not end in .npy, and
    :class:`OutputError` for a file that exists, without ``overwrite``.
    """
    if precision not in COPY_PRECISIONS:
        known = ", ".join(COPY_PRECISIONS)
        raise InputError(f"precision must be one of {known}, got {precision!r}")
    target = Path(path)
    if target.suffix != ".npy":
        raise InputError(f"{target} must end in .npy")
    store.check_target(target, overwrite=overwrite)
    check_target(record_of(target), overwrite=overwrite)
    ranges = _ranges(store) if precision == "int8" else None
    rows = dimension = 0
    with VectorStore(target, overwrite=overwrite) as written:
        for block in store.float_blocks():
            rows, dimension = rows + len(block), block.shape[1]
            written.append(quantize_vectors(np.asarray(block), precision, ranges=ranges))
    record = {
        "precision": precision,
        "rows": rows,
        "dimension": dimension,
        "ranges": None if ranges is None else ranges.tolist(),
        "store": store.digest(),
        "sha256": file_sha256(target),
    }
    write_atomically(record_of(target), (json.dumps(record) + "\n").encode("ascii"))
    return QuantizedCopy(
        path=target, precision=precision, rows=rows, dimension=dimension, ranges=ranges
    )


def load_copy(store: StoredVectors, path: str | os.PathLike[str]) -> QuantizedCopy:
    """Open a quantized copy; raises :class:`ReadError` if it is damaged or of another store."""
    target = Path(path)
    if not record_of(target).is_file():
        raise ReadError(f"{record_of(target)} is missing; make the copy again")
    record = read_value(record_of(target), ReadError)
    precision: CopyPrecision = record.get("precision").read_as(CopyPrecision)
    ranges = record.get("ranges").optional(
        lambda value: np.array(value.read_as(tuple[tuple[float, ...], ...]), dtype=np.float32)
    )
    dimension = record.get("dimension").positive()
    shape = None if precision == "ubinary" else (2, dimension)
    if (None if ranges is None else ranges.shape) != shape:
        raise record.get("ranges").must_be(f"{shape and list(shape)}")
    if record.get("store").string() != store.digest():
        raise ReadError(f"{target} is a copy of other vectors than {store.path}'s; make it again")
    if not target.is_file() or file_sha256(target) != record.get("sha256").string():
        raise ReadError(f"{target} is not as it was written: its SHA-256 differs; make it again")
    return QuantizedCopy(
        path=target,
        precision=precision,
        rows=record.get("rows").optional(JsonValue.positive) or 0,
        dimension=dimension,
        ranges=ranges,
    )


def search_copy(
    store: StoredVectors,
    copy: QuantizedCopy,
    queries_QD: npt.NDArray[np.float32],
    num_hits: int,
    *,
    oversampling: int = DEFAULT_OVERSAMPLING,
) -> list[list[Hit]]:
    """Return, for each query, the rows with the largest dot products among the copy's candidates.

    oversampling: candidates per hit, rescored by the store's vectors. If all rows are candidates,
    the result is that of :func:`search_vectors`. Raises :class:`ShapeError` for queries of another
    width.
    """
    check_num_hits(num_hits)
    check_num_hits(oversampling, "oversampling")
    check_queries(queries_QD)
    if queries_QD.shape[1] != copy.dimension:
        raise ShapeError(
            f"{copy.path} is made of vectors of {copy.dimension} features, the queries are "
            f"{list(queries_QD.shape)}"
        )
    count = min(num_hits * oversampling, copy.rows)
    # The candidates' vectors of all queries at once could take more memory than the store.
    found = [_search_part(store, copy, part, num_hits, count) for part in query_parts(queries_QD)]
    rows_QK, scores_QK = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return make_hits(store, rows_QK, scores_QK)


def _search_part(
    store: StoredVectors,
    copy: QuantizedCopy,
    queries_QD: npt.NDArray[np.float32],
    num_hits: int,
    count: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the hits' rows and scores of some queries, [Q, K], from ``count`` candidates each."""
    candidates_QK = _candidates(copy, queries_QD, count)
    rows_C = np.unique(candidates_QK)
    vectors_CD = store.take(rows_C)
    places_QK = np.searchsorted(rows_C, candidates_QK)
    scores_QK = np.einsum("qd,qkd->qk", queries_QD, vectors_CD[places_QK])
    # Equal scores in the order of their rows, as an exact search has them.
    order = np.lexsort((candidates_QK, -scores_QK), axis=1)[:, :num_hits]
    rows_QK = np.take_along_axis(candidates_QK, order, axis=1)
    return rows_QK, np.take_along_axis(scores_QK, order, axis=1)


def _ranges(store: StoredVectors) -> npt.NDArray[np.float32]:
    lows: Any = None
    highs: Any = None
    for block in store.float_blocks():
        low, high = block.min(axis=0), block.max(axis=0)
        lows = low if lows is None else np.minimum(lows, low)
        highs = high if highs is None else np.maximum(highs, high)
    return np.stack([lows, highs]).astype(np.float32)


def _candidates(
    copy: QuantizedCopy, queries_QD: npt.NDArray[np.float32], count: int
) -> npt.NDArray[np.int64]:
    """Return the rows with each query's highest scores in the quantized copy: int64 [Q, K]."""
    best = no_hits(queries_QD)
    first_row = 0
    for found_QN in _block_scores(copy, queries_QD):
        best = keep_best(best, found_QN, first_row, count)
        first_row += found_QN.shape[1]
    if first_row != copy.rows:
        raise ReadError(f"{copy.path} holds {first_row} rows, {copy.rows} were recorded")
    return best[0]


def _block_scores(
    copy: QuantizedCopy, queries_QD: npt.NDArray[np.float32]
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield for each block of the quantized copy the queries' scores, float32 [Q, n]."""
    if copy.precision == "int8":
        assert copy.ranges is not None
        lows, highs = copy.ranges
        steps = (highs - lows) / 255
        # A level stands for the middle of its step; levels are stored minus 128.
        offsets_Q = queries_QD @ (lows + 128.5 * steps)
        scaled_QD = queries_QD * steps
        for block in read_blocks(copy.path):
            yield scaled_QD @ block.astype(np.float32).T + offsets_Q[:, None]
        return
    bits_QB = np.packbits(queries_QD > 0, axis=-1)
    # Below half a bit, so that it decides between equal distances alone.
    unit = 0.49 / np.maximum(np.abs(queries_QD).sum(axis=1, keepdims=True), np.float32(1e-30))
    for block in read_blocks(copy.path):
        distances_QN = np.empty((len(bits_QB), len(block)), dtype=np.float32)
        for query, bits_B in enumerate(bits_QB):
            distances_QN[query] = _count_bits(block ^ bits_B)
        signs_ND = np.unpackbits(block, axis=-1, count=copy.dimension).astype(np.float32) * 2 - 1
        yield (queries_QD @ signs_ND.T) * unit - distances_QN


def _count_bits(rows_NB: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    counted: npt.NDArray[np.float32] = _BITS[rows_NB].sum(axis=-1, dtype=np.float32)
    return counted


# The number of bits in each byte: numpy.bitwise_count is of NumPy 2.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
