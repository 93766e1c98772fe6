"""Search in quantized copies, over sparse rows, over joined ranks; negatives for training."""

from __future__ import annotations

import json
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import load_vectors
from encoder_engine.errors import InputError, OutputError, ReadError, ShapeError
from encoder_engine.vectors.hits import Hit
from encoder_engine.vectors.hybrid import fuse_ranks
from encoder_engine.vectors.mining import MiningOptions, mine_negatives
from encoder_engine.vectors.quantized import load_copy, search_copy, write_copy
from encoder_engine.vectors.recall import retrieval_loss
from encoder_engine.vectors.search import QUERIES, search_vectors
from encoder_engine.vectors.sparse_vectors import SparseVectors, join_sparse
from encoder_engine.vectors.token_vectors import TokenVectors, join_tokens
from tests.vectors.drawn import assert_vectors_agree

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.vectors.stored_vectors import StoredVectors

DIMENSION, ROWS = 100, 3000


@pytest.fixture(scope="module")
def drawn() -> np.ndarray[Any, np.dtype[np.float32]]:
    draw = np.random.default_rng(0)
    # Rows around centres: neighbours are nearer than chance, as in stored texts.
    centres = draw.normal(size=(60, DIMENSION))
    rows = centres[draw.integers(0, 60, ROWS)] + 0.7 * draw.normal(size=(ROWS, DIMENSION))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


@pytest.fixture(scope="module")
def store(drawn: Any, tmp_path_factory: pytest.TempPathFactory) -> StoredVectors:
    path = tmp_path_factory.mktemp("store") / "v.npy"
    np.save(path, drawn)
    return load_vectors(path)


def recall(found: list[list[Hit]], truth: list[list[Hit]]) -> float:
    same = [
        len({h.row for h in a} & {h.row for h in b}) / len(b)
        for a, b in zip(found, truth, strict=True)
    ]
    return float(np.mean(same))


@pytest.mark.parametrize(
    ("precision", "size", "least"), [("int8", DIMENSION, 0.999), ("ubinary", 13, 0.9)]
)
def test_a_copy_finds_what_an_exact_search_finds(
    store: StoredVectors, drawn: Any, tmp_path: Path, precision: Any, size: int, least: float
) -> None:
    copy = write_copy(store, tmp_path / "c.npy", precision)
    assert np.load(tmp_path / "c.npy").shape == (ROWS, size)
    again = load_copy(store, tmp_path / "c.npy")
    assert (again.precision, again.rows, again.dimension) == (precision, ROWS, DIMENSION)
    queries = drawn[::50] + 0.02 * np.random.default_rng(1).normal(size=(60, DIMENSION))
    queries = queries.astype(np.float32)
    truth = search_vectors(store, queries, 10)
    found = search_copy(store, again, queries, 10, oversampling=10)
    assert recall(found, truth) >= least
    exact = search_copy(store, copy, queries, 10, oversampling=ROWS)
    assert [[h.row for h in hits] for hits in exact] == [[h.row for h in hits] for hits in truth]
    true = queries.astype(np.float64) @ drawn.astype(np.float64).T
    for hits, wanted, true_N in zip(exact, truth, true, strict=True):
        ours, eager = (np.array([h.score for h in one], np.float32) for one in (hits, wanted))
        assert_vectors_agree(ours, eager, true_N[[h.row for h in hits]], terms=DIMENSION)


def test_queries_and_rows_that_are_none_are_refused(
    store: StoredVectors, drawn: Any, tmp_path: Path
) -> None:
    copies = [write_copy(store, tmp_path / f"{p}.npy", p) for p in ("int8", "ubinary")]
    broken = drawn[:3].copy()
    broken[1, 5] = np.nan
    searches: list[Any] = [partial(search_vectors, store)]
    for search in searches + [partial(search_copy, store, copy) for copy in copies]:
        assert search(drawn[:0], 3) == []
        for hits in (0, True, 2.5, "3"):
            with pytest.raises(InputError, match="num_hits must be a whole number of at least 1"):
                search(drawn[:1], hits)
        with pytest.raises(InputError, match="query 1 holds NaN") as caught:
            search(broken, 3)
        assert caught.value.row == 1
        with pytest.raises(InputError, match="queries are int8"):
            search(drawn[:1].astype(np.int8), 3)
        with pytest.raises(ShapeError, match=r"\[Q, D\], got \[100\]"):
            search(drawn[0], 3)
    for rows, message in (
        ([5, ROWS], f"no row {ROWS}, it has {ROWS} rows"),
        ([-1, 5], "no row -1"),
        ([5, 3], "ascending order"),
        ([0.5], "whole numbers"),
    ):
        with pytest.raises(InputError, match=message):
            store.take(np.array(rows))
    np.testing.assert_array_equal(store.take(np.array([3, 3, 7])), drawn[[3, 3, 7]])
    assert store.take(np.array([])).shape == (0, DIMENSION)


def test_copies_are_compared_with_their_store(
    store: StoredVectors, drawn: Any, tmp_path: Path
) -> None:
    write_copy(store, tmp_path / "c.npy")
    with pytest.raises(OutputError):
        write_copy(store, tmp_path / "c.npy")
    np.save(tmp_path / "other.npy", drawn[:100])
    with pytest.raises(ReadError, match="other vectors"):
        load_copy(load_vectors(tmp_path / "other.npy"), tmp_path / "c.npy")
    with pytest.raises(ReadError, match="is missing"):
        load_copy(store, tmp_path / "no.npy")
    content = bytearray((tmp_path / "c.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "c.npy").write_bytes(bytes(content))
    with pytest.raises(ReadError, match="SHA-256 differs"):
        load_copy(store, tmp_path / "c.npy")
    write_copy(store, tmp_path / "c.npy", overwrite=True)
    copy = load_copy(store, tmp_path / "c.npy")
    with pytest.raises(ShapeError, match="features"):
        search_copy(store, copy, drawn[:1, :5], 3)
    with pytest.raises(InputError, match="oversampling"):
        search_copy(store, copy, drawn[:1], 3, oversampling=0)
    with pytest.raises(InputError, match="must end in"):
        write_copy(store, tmp_path / "c.bin")
    record = json.loads((tmp_path / "c.quantized.json").read_text())
    (tmp_path / "c.quantized.json").write_text(json.dumps(record | {"ranges": [[1.0]]}))
    with pytest.raises(ReadError, match="ranges"):
        load_copy(store, tmp_path / "c.npy")


@pytest.mark.parametrize("form", ["exact", "int8", "ubinary"])
def test_many_queries_find_what_each_finds_alone(
    store: StoredVectors, drawn: Any, tmp_path: Path, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encoder_engine.vectors.store_files.BLOCK_ROWS", 700)
    search = partial(search_vectors, store)
    if form != "exact":
        search = partial(search_copy, store, write_copy(store, tmp_path / "c.npy", form))
    queries = drawn[: 2 * QUERIES + 3]
    found = search(queries, 5)
    assert [hits[0].row for hits in found] == list(range(len(queries)))
    for number in (0, QUERIES - 1, QUERIES, len(queries) - 1):
        (alone,) = search(queries[number : number + 1], 5)
        assert [hit.row for hit in found[number]] == [hit.row for hit in alone]


def test_many_queries_need_the_scores_of_a_part_at_a_time(
    store: StoredVectors, drawn: Any, tmp_path: Path
) -> None:
    copy = write_copy(store, tmp_path / "c.npy")
    queries = np.tile(drawn[:QUERIES], (8, 1))
    known = [[row % ROWS] for row in range(len(queries))]
    for compute in (
        lambda part: search_vectors(store, part, 5),
        lambda part: search_copy(store, copy, part, 5),
        lambda part: retrieval_loss(store, part, known[: len(part)]),
    ):
        peaks = []
        for part in (queries[:QUERIES], queries):
            tracemalloc.start()
            compute(part)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        # The hits themselves, at most 1 KB each, grow with the queries; scores of all do not.
        assert peaks[1] < peaks[0] + 5 * len(queries) * 1024


def sparse(rows: list[dict[int, float]], dimension: int = 20) -> SparseVectors:
    made = [
        SparseVectors(
            indptr=np.array([0, len(row)]),
            indices=np.array(sorted(row), np.int32),
            values=np.array([row[key] for key in sorted(row)], np.float32),
            dimension=dimension,
        )
        for row in rows
    ]
    return join_sparse(made, dimension)


def test_sparse_search_equals_the_matrix_product() -> None:
    draw = np.random.default_rng(2)

    def some(count: int) -> SparseVectors:
        rows = []
        for _ in range(count):
            tokens = draw.choice(20, size=draw.integers(0, 6), replace=False)
            rows.append({int(token): float(draw.uniform(0.1, 2)) for token in tokens})
        return sparse(rows)

    documents, queries = some(40), some(7)
    scores = queries.dense() @ documents.dense().T
    truth = queries.dense().astype(np.float64) @ documents.dense().astype(np.float64).T
    assert_vectors_agree(queries.similarity(documents), scores, truth, terms=20)
    for number, hits in enumerate(documents.search(queries, 5)):
        order = [row for row in np.argsort(-scores[number], kind="stable") if scores[number, row]]
        assert [hit.row for hit in hits] == order[:5]
        found = np.array([hit.score for hit in hits], np.float32)
        best = order[:5]
        assert_vectors_agree(found, scores[number][best], truth[number][best], terms=20)
    with pytest.raises(ShapeError, match="over vocabularies of 20 and 21"):
        documents.search(sparse([{0: 1.0}], 21), 3)


def test_vectors_of_some_tokens_are_taken() -> None:
    vectors = TokenVectors(
        vectors=np.arange(10, dtype=np.float32).reshape(5, 2),
        ids=np.array([7, 8, 7, 9, 8], np.int32),
        cu_seqlens=np.array([0, 2, 2, 5]),
    )
    kept, left = vectors.only([8]), vectors.without([8])
    assert kept.cu_seqlens.tolist() == [0, 1, 1, 2]
    assert left.cu_seqlens.tolist() == [0, 1, 1, 3]
    np.testing.assert_array_equal(kept.vectors, vectors.vectors[[1, 4]])
    np.testing.assert_array_equal(left.ids, [7, 7, 9])
    both = join_tokens([kept, left], 2)
    assert both.cu_seqlens.tolist() == [0, 1, 1, 2, 3, 3, 5]
    np.testing.assert_array_equal(both[5], left[2])


def hits(*rows: int) -> list[Hit]:
    return [Hit(row=row, identifier=None, score=-float(rank)) for rank, row in enumerate(rows)]


def test_joined_ranks_are_sums_of_reciprocals() -> None:
    found = fuse_ranks([hits(3, 1, 2), hits(2, 3, 7)], 3)
    assert [hit.row for hit in found] == [3, 2, 1]
    assert found[0].score == 1 / 61 + 1 / 62
    weighted = fuse_ranks([hits(3, 1, 2), hits(2, 3, 7)], 1, weights=[0, 1])
    assert [hit.row for hit in weighted] == [2]
    for options in ({"weights": [1.0]}, {"constant": 0}, {"weights": [1.0, float("nan")]}):
        with pytest.raises(InputError):
            fuse_ranks([hits(1), hits(2)], 1, **options)


def mining_store(tmp_path: Path, scores: list[float]) -> StoredVectors:
    """Write a store whose dot products with [1, 0] are these."""
    np.save(tmp_path / "m.npy", np.array([[s, 1.0] for s in scores], np.float32))
    return load_vectors(tmp_path / "m.npy")


QUERY = np.array([[1.0, 0.0]], np.float32)


def test_negatives_leave_out_answers_and_their_like(tmp_path: Path) -> None:
    # Row 1 is the answer; row 0 is above it, row 2 within 5 %, row 3 has the answer's text.
    store = mining_store(tmp_path, [0.99, 0.9, 0.88, 0.8, 0.7, 0.6, 0.5])
    texts = {row: f"text {row}" for row in range(7)} | {3: "text 1", 5: "the query"}
    found = mine_negatives(
        store,
        QUERY,
        [[1]],
        MiningOptions(num_negatives=3),
        query_texts=["the query"],
        texts_of=lambda rows: {row: texts[row] for row in rows},
    )
    assert found.rows == [[4, 6]]
    assert found.scores[0] == [float(np.float32(0.7)), 0.5]
    assert (found.num_positives, found.num_equal_texts, found.num_too_near) == (1, 2, 2)
    assert found.num_short == 1


def test_ranks_and_margins_bound_the_negatives(tmp_path: Path) -> None:
    store = mining_store(tmp_path, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    plain = MiningOptions(relative_margin=None, num_negatives=2, rank_range=(2, 4))
    assert mine_negatives(store, QUERY, [[0]], plain).rows == [[2, 3]]
    # Ranks count documents that are no answers; the worst answer decides.
    several = mine_negatives(store, QUERY, [[0, 3]], MiningOptions(num_negatives=5))
    assert several.rows == [[4, 5]]
    absolute = MiningOptions(relative_margin=None, absolute_margin=0.35, num_negatives=5)
    assert mine_negatives(store, QUERY, [[0]], absolute).rows == [[4, 5]]
    store = mining_store(tmp_path, [-1.0, -1.01, -1.2])
    assert mine_negatives(store, QUERY, [[0]]).rows == [[2]]


def test_impossible_minings_are_refused(tmp_path: Path) -> None:
    store = mining_store(tmp_path, [1.0, 0.5])
    for positives, message in (
        ([[]], "no positive"),
        ([[7]], "has 2 rows"),
        ([[0], [1]], "positives of 2"),
    ):
        with pytest.raises(InputError, match=message):
            mine_negatives(store, QUERY, positives)
    for options in (
        {"rank_range": (3, 2)},
        {"num_negatives": 0},
        {"relative_margin": 1.0},
        {"absolute_margin": -1.0},
    ):
        with pytest.raises(InputError):
            MiningOptions(**options)
