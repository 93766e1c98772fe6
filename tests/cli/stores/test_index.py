"""``encoder-engine index`` and ``search --index``: FAISS finds what the exact search finds."""

from __future__ import annotations

import errno
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import InputError, OutputError, ReadError, ShapeError
from encoder_engine.files import PendingFile
from encoder_engine.vectors.faiss_index import IndexSettings, search_index, write_index
from encoder_engine.vectors.search import search_vectors
from encoder_engine.vectors.stored_vectors import StoredVectors

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

QUERIES = ["the row", "long words 7"]
Floats = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture
def store(run: Run, model: Path, tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    rows = [json.dumps({"id": f"row-{i}", "text": f"text {i}"}) for i in range(200)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = ["embed", path, "-o", f"{tmp_path}/out/", "-m", model, "--id-column", "id"]
    assert run(*command, "--shard-rows", 60, "--quiet").code == 0
    return tmp_path / "out"


@pytest.mark.parametrize("kind", ["hnsw", "flat"])
def test_an_index_finds_what_the_exact_search_finds(
    run: Run, store: Path, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed; it comes with the extra faiss")
    path = tmp_path / "vectors.faiss"
    built = run("index", store, "-o", path, "--kind", kind)
    assert (built.code, "200" in built.output) == (0, True)
    exact = run("search", store, *QUERIES, "--top", 5, "--json")
    found = run("search", store, *QUERIES, "--top", 5, "--json", "--index", path)
    assert (found.code, found.errors) == (0, "")
    for one, other in zip(exact.output.splitlines(), found.output.splitlines(), strict=True):
        ours, theirs = json.loads(one)["hits"], json.loads(other)["hits"]
        # Sums of 16 products below 1, in another order.
        rounding = 2 * 16 * float(np.finfo(np.float32).eps) / 2
        for hit, another in zip(ours, theirs, strict=True):
            assert abs(hit["score"] - another["score"]) <= rounding
            assert another["identifier"] == f"row-{another['row']}"
    assert "--overwrite" in run("index", store, "-o", path).errors


def test_what_is_no_index_of_the_store_is_refused(
    run: Run, model: Path, store: Path, tmp_path: Path
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed; it comes with the extra faiss")
    (tmp_path / "broken.faiss").write_bytes(b"nothing")
    for name in ("broken", "none"):
        result = run("search", store, "a", "--index", tmp_path / f"{name}.faiss")
        assert (result.code, "not an index of FAISS" in result.errors) == (1, True)
    vectors = np.random.default_rng(0).random((200, 16), dtype=np.float32)
    np.save(tmp_path / "other.npy", vectors)
    assert run("index", tmp_path / "other.npy", "-o", tmp_path / "other.faiss").code == 0
    result = run("search", store, "a", "--index", tmp_path / "other.faiss")
    assert "other vectors" in result.errors
    bits = tmp_path / "bits.npy"
    np.save(bits, np.zeros((4, 2), np.uint8))
    assert "bits" in run("index", bits, "-o", tmp_path / "bits.faiss").errors
    assert not list(tmp_path.glob("bits.faiss*"))


def test_neither_the_store_nor_its_inputs_are_replaced(
    run: Run, store: Path, tmp_path: Path
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed; it comes with the extra faiss")
    for path in (store / "part-00000.npy", store / "part-00000.ids.txt", tmp_path / "in.jsonl"):
        before = path.read_bytes()
        result = run("index", store, "-o", path, "--overwrite")
        assert (result.code, "is one of the inputs" in result.errors) == (1, True)
        assert path.read_bytes() == before


def test_what_cannot_be_searched_is_refused(store: Path, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed; extra faiss")
    stored, path = StoredVectors(store), tmp_path / "vectors.faiss"
    write_index(stored, path, IndexSettings(kind="flat"))
    with pytest.raises(ShapeError, match="16 features, the queries have 9"):
        search_index(stored, path, np.zeros((1, 9), np.float32), 1)
    with pytest.raises(InputError, match="at least 1, got 0"):
        search_index(stored, path, np.zeros((1, 16), np.float32), 0)
    distances = faiss.IndexFlatL2(16)
    distances.add(stored.take(np.arange(200)))
    faiss.write_index(distances, str(path))
    with pytest.raises(ReadError, match="index of distances"):
        search_index(stored, path, np.zeros((1, 16), np.float32), 1)


def test_a_full_disk_is_told_of_the_index(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed; it comes with the extra faiss")

    def fail(_self: PendingFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PendingFile, "publish", fail)
    with pytest.raises(OutputError, match="could not be written: No space left"):
        write_index(StoredVectors(store), tmp_path / "a.faiss", IndexSettings(kind="flat"))
    assert not list(tmp_path.glob("a.faiss*"))


def test_without_faiss_the_extra_is_named(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for command in (
        ("index", store, "-o", tmp_path / "a.faiss"),
        ("search", store, "a", "--index", tmp_path / "a.faiss"),
    ):
        assert "pip install '.[faiss]'" in run(*command).errors


def unlike(num_rows: int, num_features: int, seed: int) -> Floats:
    """Draw vectors of length 1 of some kinds of rows, each kind close together."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((40, num_features)).astype(np.float32)
    rows = centres[random.integers(40, size=num_rows)]
    rows = rows + 0.6 * random.standard_normal((num_rows, num_features)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def recall(store: StoredVectors, path: Path, queries: Floats) -> float:
    exact = search_vectors(store, queries, 1)
    found = search_index(store, path, queries, 1)
    return float(np.mean([a[0].row == b[0].row for a, b in zip(exact, found, strict=True)]))


def test_queries_unlike_the_rows_find_what_the_exact_search_finds(tmp_path: Path) -> None:
    """A depth of 64 found 60% of these; the index now measures, and searches as deep as it must."""
    faiss = pytest.importorskip("faiss", reason="faiss is not installed; extra faiss")
    np.save(tmp_path / "v.npy", unlike(6000, 64, 0))
    stored, path = StoredVectors(tmp_path / "v.npy"), tmp_path / "v.faiss"
    queries = np.random.default_rng(1).standard_normal((200, 64)).astype(np.float32)
    shallow = write_index(stored, path, IndexSettings(links=16, construction=40, depth=16))
    assert shallow.recall < 0.9
    assert recall(stored, path, queries) < 0.95
    report = write_index(stored, path, overwrite=True)
    assert report.recall >= 0.98
    assert recall(stored, path, queries) >= 0.97
    # Who opens it with faiss alone searches as deep.
    assert faiss.read_index(str(path)).hnsw.efSearch == report.depth


def test_an_index_that_cannot_find_enough_is_refused(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed; it comes with the extra faiss")
    # Long vectors in all directions, and short ones that no graph of products leads to.
    random = np.random.default_rng(0)
    vectors = random.standard_normal((3000, 8)).astype(np.float32)
    vectors[::2] *= 0.001
    np.save(tmp_path / "v.npy", vectors)
    options = ("--links", 2, "--construction", 2, "--recall", 1)
    result = run("index", tmp_path / "v.npy", "-o", tmp_path / "v.faiss", *options)
    assert (result.code, "--kind flat" in result.errors) == (1, True)
    assert not list(tmp_path.glob("v.faiss*"))
    told = run("index", tmp_path / "v.npy", "-o", tmp_path / "v.faiss", "--kind", "flat")
    assert "every search is exact" in told.output
    for bad in (("--kind", "flat", "--links", 8), ("--kind", "flat", "--depth", 8)):
        assert "only to a graph" in run("index", tmp_path / "v.npy", "-o", "x", *bad).errors


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_an_index_that_was_damaged_is_refused(
    run: Run, store: Path, tmp_path: Path, place: float
) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed; it comes with the extra faiss")
    path = tmp_path / "v.faiss"
    assert run("index", store, "-o", path).code == 0
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 64
    path.write_bytes(content)
    result = run("search", store, "a", "--index", path)
    assert (result.code, "not as it was written" in result.errors) == (1, True)


def test_an_index_nobody_measured_is_compared_and_warned_of(
    run: Run, store: Path, tmp_path: Path
) -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed; extra faiss")
    stored, path = StoredVectors(store), tmp_path / "v.faiss"
    index = faiss.IndexHNSWFlat(16, 32, faiss.METRIC_INNER_PRODUCT)
    vectors = np.array(stored.vectors)
    index.add(vectors)
    faiss.write_index(index, str(path))
    result = run("search", store, "the row", "--index", path, "--json")
    assert (result.code, "was never measured" in result.errors) == (0, True)
    exact = json.loads(run("search", store, "the row", "--json").output)
    found = json.loads(result.output)
    assert [hit["row"] for hit in found["hits"]] == [hit["row"] for hit in exact["hits"]]
    index = faiss.IndexFlatIP(16)
    vectors[100, 3] += 1
    index.add(vectors)
    faiss.write_index(index, str(path))
    assert "other vectors" in run("search", store, "the row", "--index", path).errors
