"""Approximate search by FAISS: an index of a store in a separate file, with measured recall."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    EncoderEngineWarning,
    InputError,
    MissingDependencyError,
    ReadError,
    ShapeError,
)
from encoder_engine.files import PendingFile, writing
from encoder_engine.vectors.hits import Hit, check_num_hits
from encoder_engine.vectors.search import check_queries, make_hits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.vectors.stored_vectors import StoredVectors

Kind = Literal["hnsw", "flat"]
KINDS: tuple[Kind, ...] = ("hnsw", "flat")
DEFAULT_RECALL = 0.98
# The graphs that are tried in order until one finds enough: links of a vector, and candidates when
# a vector is added.
_GRAPHS = ((32, 200), (64, 400))
_FIRST_DEPTH = 64
# If searches of the first graph need more candidates than this, the next graph is tried.
_MOST_DEPTH_OF_FIRST = 512
_NUM_PROBES = 256
_PROBED_HITS = 10
_MARKER = b"\nencoder-engine index "


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """The settings of an index.

    kind: ``"flat"`` or ``"hnsw"``.
    recall: the share of the nearest neighbours that a graph has to find.
    links: the links per node of the graph (M); None: chosen by measuring.
    construction: candidates while building (efConstruction); None: chosen by measuring.
    depth: candidates of a search (efSearch); None: the smallest number that reaches ``recall``.
    """

    kind: Kind = "hnsw"
    recall: float = DEFAULT_RECALL
    links: int | None = None
    construction: int | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if not 0 < self.recall <= 1:
            raise InputError(f"recall must be above 0 and at most 1, got {self.recall}")
        for name in ("links", "construction", "depth"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 2:
                raise InputError(f"{name} must be a whole number of at least 2, got {value!r}")
            if self.kind == "flat":
                raise InputError(f"{name} applies only to a graph; leave it out with kind='flat'")


@dataclass(frozen=True, kw_only=True)
class IndexReport:
    """A description of a written index: the number of rows, the graph's settings, the recall.

    The settings are those of :class:`IndexSettings`; None for a flat index.
    """

    rows: int
    kind: Kind
    recall: float = 1.0
    links: int | None = None
    construction: int | None = None
    depth: int | None = None


def import_faiss() -> Any:
    """Import faiss, or raise :class:`MissingDependencyError` that names the extra."""
    try:
        import faiss
    except ImportError:
        raise MissingDependencyError("an index", library="faiss-cpu", extra="faiss") from None
    return faiss


def write_index(
    store: StoredVectors,
    path: Path,
    settings: IndexSettings | None = None,
    *,
    overwrite: bool = False,
) -> IndexReport:
    """Index a store's vectors for search by dot product, and return the report.

    ``"flat"`` searches all vectors exactly. ``"hnsw"`` builds a graph and measures its recall on
    the store: 256 queries in random directions and 256 sums of two rows, each for the nearest 1 and
    10; the recall is the least of the four shares. Random directions are as hard as questions that
    resemble no row. The search depth doubles until the measured recall lies halfway between the
    wanted one and 1, since a sample errs, and is stored in the index. If 512 candidates are not
    enough, the graph is built once more, with twice the links and candidates unless they are given;
    for this graph, the wanted recall is enough. A ``depth`` that is given is used in any case.

    FAISS holds the vectors in memory. Raises :class:`InputError` where no graph reaches the recall,
    and :class:`MissingDependencyError` without faiss.
    """
    faiss = import_faiss()
    settings = settings or IndexSettings()
    store.check_target(path, overwrite=overwrite)
    pending = PendingFile(path, overwrite=overwrite)
    try:
        index, report = _build(faiss, store, settings)
        content = faiss.serialize_index(index).data
        trailer = {
            **asdict(report),
            "store": store.digest(),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        with writing(path):
            pending.stream.write(content)
            pending.stream.write(_MARKER + json.dumps(trailer).encode("ascii") + b"\n")
            pending.publish()
    finally:
        pending.discard()
    return report


def _build(faiss: Any, store: StoredVectors, settings: IndexSettings) -> tuple[Any, IndexReport]:
    if settings.kind == "flat":
        index = _filled(store, faiss.IndexFlatIP)
        return index, IndexReport(rows=index.ntotal, kind="flat")
    graphs = _graphs(settings)
    # A sample errs: the target lies halfway between the wanted recall and 1.
    target = (1 + settings.recall) / 2
    best: IndexReport | None = None
    enough: IndexReport | None = None
    for number, (links, construction) in enumerate(graphs, start=1):

        def empty(dimension: int, links: int = links, construction: int = construction) -> Any:
            made = faiss.IndexHNSWFlat(dimension, links, faiss.METRIC_INNER_PRODUCT)
            made.hnsw.efConstruction = construction
            return made

        index = _filled(store, empty)
        most = index.ntotal if number == len(graphs) else _MOST_DEPTH_OF_FIRST
        graph = IndexReport(rows=index.ntotal, kind="hnsw", links=links, construction=construction)
        for report in _measured(faiss, index, graph, settings, most):
            if settings.depth is not None or report.recall >= target:
                return index, report
            best = report
            if enough is None and report.recall >= settings.recall:
                enough = report
        if number < len(graphs):
            enough = None
    assert best is not None
    if enough is not None:
        index.hnsw.efSearch = enough.depth
        return index, enough
    raise InputError(
        f"the best graph of {store.path} finds {best.recall:.1%} of the nearest, less than "
        f"{settings.recall:.1%} (graphs find few among many equal rows); make a flat index with "
        "kind='flat', or ask for less by recall="
    )


def _graphs(settings: IndexSettings) -> list[tuple[int, int]]:
    graphs = [
        (settings.links or links, settings.construction or construction)
        for links, construction in _GRAPHS
    ]
    return list(dict.fromkeys(graphs))


def _filled(store: StoredVectors, empty: Any) -> Any:
    """Return an index of all vectors of the store.

    ``empty``: a function from the width of the vectors to an empty index.
    """
    index: Any = None
    for block_ND in store.float_blocks():
        if index is None:
            index = empty(block_ND.shape[1])
        index.add(np.ascontiguousarray(block_ND))
    return index


def _measured(
    faiss: Any, index: Any, report: IndexReport, settings: IndexSettings, most: int
) -> Iterator[IndexReport]:
    """Yield the report of each search depth: doubled up to ``most``, or the one in ``settings``."""
    queries = _probes(index)
    exact = faiss.downcast_index(index.storage)
    num_hits = min(_PROBED_HITS, index.ntotal)
    truth = [exact.search(q, num_hits)[0] for q in queries]
    depths = [settings.depth] if settings.depth is not None else []
    if not depths:
        doubled = (_FIRST_DEPTH << power for power in range(40))
        depths = [*takewhile(lambda depth: depth < most, doubled), max(most, _FIRST_DEPTH)]
    for depth in depths:
        index.hnsw.efSearch = depth
        recalls = [
            recall
            for q, scores_QK in zip(queries, truth, strict=True)
            for recall in _recalls(index.search(q, num_hits)[0], scores_QK)
        ]
        yield replace(report, depth=depth, recall=min(recalls))


def _probes(index: Any) -> list[npt.NDArray[np.float32]]:
    """Draw queries to measure recall with: random directions, and sums of two rows."""
    random = np.random.default_rng(0)
    rows = random.integers(index.ntotal, size=(2, _NUM_PROBES))
    pairs = [np.stack([index.reconstruct(int(row)) for row in half]) for half in rows]
    directions = random.standard_normal((_NUM_PROBES, index.d), dtype=np.float32)
    return [directions, (pairs[0] + pairs[1]).astype(np.float32)]


def _recalls(
    found_QK: npt.NDArray[np.float32], truth_QK: npt.NDArray[np.float32]
) -> tuple[float, float]:
    """Return the mean recall at 1 and at 10, from the scores of hits and of true neighbours.

    A hit counts if it scores as high as a true neighbour.
    """
    rounding = 1e-5 * np.abs(truth_QK).max(axis=1, keepdims=True)
    right_QK = found_QK >= truth_QK[:, -1:] - rounding
    return float((found_QK >= truth_QK - rounding)[:, 0].mean()), float(right_QK.mean())


def search_index(
    store: StoredVectors, path: Path, queries_QD: npt.NDArray[np.float32], num_hits: int
) -> list[list[Hit]]:
    """Return, for each query, the rows with the largest dot products that the index finds.

    The index is compared with its recorded SHA-256 and with the store. An index that FAISS itself
    wrote has no record: all its vectors are compared with the store's, with a warning that its
    recall is unknown. Raises :class:`ReadError` for a file that is not an index of dot products or
    has other vectors than the store, and :class:`ShapeError` for queries of another width.
    """
    faiss = import_faiss()
    check_num_hits(num_hits)
    check_queries(queries_QD)
    trailer = _read_trailer(path)
    if trailer is not None and trailer["store"] != store.digest():
        raise _other_vectors(store, path)
    index = _read_index(faiss, path)
    if trailer is None:
        _compare(store, index, path)
    if queries_QD.shape[1] != index.d:
        raise ShapeError(
            f"{store.path} holds vectors of {index.d} features, the queries have "
            f"{queries_QD.shape[1]}; use the model and options it was made with"
        )
    if hasattr(index, "hnsw"):
        _set_depth(index, path, num_hits, measured=trailer is not None)
    scores_QK, rows_QK = index.search(queries_QD, min(num_hits, index.ntotal))
    return make_hits(store, rows_QK, scores_QK)


def _set_depth(index: Any, path: Path, num_hits: int, *, measured: bool) -> None:
    """Set the search depth of a graph, in candidates, for a search of ``num_hits`` hits.

    It grows in proportion where there are more hits than the recall was measured with. Warns if the
    recall was never measured.
    """
    if not measured:
        warnings.warn(
            EncoderEngineWarning(
                f"the recall of {path} was never measured; make it again with encoder-engine "
                "index, which measures it"
            ),
            stacklevel=3,
        )
    depth = max(index.hnsw.efSearch, _FIRST_DEPTH)
    index.hnsw.efSearch = min(depth * -(-num_hits // _PROBED_HITS), max(index.ntotal, num_hits))


def _read_index(faiss: Any, path: Path) -> Any:
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        reason = str(error).rpartition(": ")[2]
        raise ReadError(f"{path} is not an index of FAISS ({reason}); make it again") from None
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ReadError(f"{path} is an index of distances, not of dot products; make it again")
    return index


def _read_trailer(path: Path) -> dict[str, Any] | None:
    """Read and verify the record at the end of an index file; None: it has no record."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4096))
            _, marker, recorded = file.read().rpartition(_MARKER)
            if not marker:
                return None
            length = size - len(marker) - len(recorded)
            found = _sha256(file, length)
    except OSError as error:
        raise ReadError(
            f"{path} is not an index of FAISS ({error.strerror}); make it again"
        ) from None
    try:
        trailer: dict[str, Any] = json.loads(recorded)
        same = trailer["sha256"] == found and isinstance(trailer["store"], str)
    except (ValueError, TypeError, KeyError):
        same = False
    if not same:
        raise ReadError(f"{path} is not as it was written: its SHA-256 differs; make it again")
    return trailer


def _sha256(file: Any, num_bytes: int) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while num_bytes:
        part = file.read(min(num_bytes, 1 << 20))
        if not part:
            break
        digest.update(part)
        num_bytes -= len(part)
    return digest.hexdigest()


def _compare(store: StoredVectors, index: Any, path: Path) -> None:
    """Raise :class:`ReadError` if an index without a record has other vectors than the store."""
    first_row = 0
    for block_ND in store.float_blocks():
        stop = first_row + len(block_ND)
        same = index.d == block_ND.shape[1] and stop <= index.ntotal
        if not same or not np.array_equal(index.reconstruct_n(first_row, len(block_ND)), block_ND):
            raise _other_vectors(store, path)
        first_row = stop
    if first_row != index.ntotal:
        raise _other_vectors(store, path)


def _other_vectors(store: StoredVectors, path: Path) -> ReadError:
    return ReadError(f"{path} is an index of other vectors than {store.path}'s; make it again")
