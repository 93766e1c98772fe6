"""Approximate search by FAISS: an index of a store, in a file beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.embedding.search import Hit
from encoder_engine.errors import InputError, MissingDependencyError, ReadError, ShapeError
from encoder_engine.files import PendingFile, writing

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.embedding.search import StoredVectors

Kind = Literal["hnsw", "flat"]
KINDS: tuple[Kind, ...] = ("hnsw", "flat")
# FAISS's own default for 32-bit graphs, and a construction twice as careful.
_LINKS, _CONSTRUCTION, _SEARCH = 32, 80, 64


def import_faiss() -> Any:
    """Import faiss or raise :class:`MissingDependencyError` naming the extra."""
    try:
        import faiss
    except ImportError:
        raise MissingDependencyError("an index", library="faiss-cpu", extra="faiss") from None
    return faiss


def write_index(store: StoredVectors, path: Path, kind: Kind, *, overwrite: bool) -> int:
    """Index a store's vectors by their dot products; return how many.

    ``"hnsw"``: a graph, searched in little time and nearly always right. ``"flat"``: all vectors,
    exactly. The file is there when it is whole. FAISS holds the vectors in memory.
    """
    faiss = import_faiss()
    index: Any = None
    store.check_target(path, overwrite=overwrite)
    pending = PendingFile(path, overwrite=overwrite)
    try:
        for block_ND in store.float_blocks():
            if index is None:
                index = _new_index(faiss, kind, block_ND.shape[1])
            index.add(np.ascontiguousarray(block_ND))
        if index is None:
            raise InputError(f"{store.path} holds no vectors")
        with writing(path):
            pending.stream.write(faiss.serialize_index(index).data)
            pending.publish()
    finally:
        pending.discard()
    return int(index.ntotal)


def _new_index(faiss: Any, kind: Kind, dimension: int) -> Any:
    if kind == "flat":
        return faiss.IndexFlatIP(dimension)
    index = faiss.IndexHNSWFlat(dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _CONSTRUCTION
    return index


def search_index(
    store: StoredVectors, path: Path, queries_QD: npt.NDArray[np.float32], num_hits: int
) -> list[list[Hit]]:
    """Return each query's rows of the greatest dot products, as an index finds them.

    Raises :class:`ReadError` for a file that is no index of dot products, or one of other vectors
    than the store's, and :class:`ShapeError` for queries of another width.
    """
    faiss = import_faiss()
    if num_hits < 1:
        raise InputError(f"num_hits must be at least 1, got {num_hits}")
    try:
        index = faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).rpartition(": ")[2]
        raise ReadError(f"{path} is no index of FAISS ({reason}); make it again") from None
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ReadError(f"{path} is an index of distances, not of dot products; make it again")
    _compare(store, index, path)
    if queries_QD.shape[1] != index.d:
        raise ShapeError(
            f"{store.path} holds vectors of {index.d} features, the queries have "
            f"{queries_QD.shape[1]}; use the model and options it was made with"
        )
    if hasattr(index, "hnsw"):
        index.hnsw.efSearch = max(_SEARCH, num_hits)
    scores_QK, rows_QK = index.search(queries_QD, min(num_hits, index.ntotal))
    names = store.identifiers(set(rows_QK.reshape(-1).tolist()))
    return [
        [
            Hit(row=int(row), identifier=names.get(int(row)), score=float(score))
            for row, score in zip(rows_K, scores_K, strict=True)
            if row >= 0
        ]
        for rows_K, scores_K in zip(rows_QK, scores_QK, strict=True)
    ]


def _compare(store: StoredVectors, index: Any, path: Path) -> None:
    """Compare the number of vectors, the first and the last."""
    num_rows = store.count_rows()
    ends = np.array([0, num_rows - 1])
    same = index.ntotal == num_rows
    if same:
        stored_2D = store.take(ends)
        same = index.d == stored_2D.shape[1] and all(
            np.array_equal(index.reconstruct(int(row)), vector)
            for row, vector in zip(ends, stored_2D, strict=True)
        )
    if not same:
        raise ReadError(f"{path} is an index of other vectors than {store.path}'s; make it again")
