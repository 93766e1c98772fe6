"""The recipes of docs/stores.md, run as they stand: each finds what the exact search finds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder

PAGE = (ROOT / "docs" / "stores.md").read_text("utf-8")
NEEDED = {
    "DuckDB": "duckdb",
    "FAISS": "faiss",
    "LanceDB": "lancedb",
    "Qdrant": "qdrant_client",
    "Chroma": "chromadb",
}


def recipe(title: str) -> str:
    """Return the code of a section of the page."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(found) == 1, title
    return str(found[0])


@pytest.fixture
def store(tiny: Embedder, tmp_path: Path) -> Path:
    rows = [json.dumps({"id": f"row-{i}", "text": f"text {i} {i * i}"}) for i in range(60)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    options: dict[str, Any] = {"shard_rows": 25, "shard_format": "parquet", "id_column": "id"}
    pytest.importorskip("pyarrow")
    tiny.encode_dataset(tmp_path / "in.jsonl", tmp_path / "vectors", **options)
    return tmp_path / "vectors"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("title", NEEDED)
def test_a_recipe_finds_the_nearest_rows(
    tiny: Embedder, store: Path, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    pytest.importorskip(NEEDED[title], reason=f"{NEEDED[title]} is not installed")
    monkeypatch.chdir(store.parent)
    names: dict[str, Any] = {"stored": ee.load_vectors(store), "embedder": tiny}
    exec(recipe(title), names)
    scores = np.asarray(names["stored"].vectors) @ tiny.encode("a question")
    best = [f"row-{row}" for row in np.argsort(-scores, kind="stable")[:3]]
    if title == "FAISS":
        assert [f"row-{row}" for row in names["rows"][0]] == best
        return
    found = [row if isinstance(row, str) else row[0] for row in names["nearest"]]
    assert found == best


def test_the_page_loads_a_store_as_it_says(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.parent)
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    assert names["stored"].rows == 60
    exec(recipe("numpy"), names)
    assert names["vectors"].shape == (60, 16)


def test_pandas_reads_a_store_and_a_folder_of_parquet(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    names: dict[str, Any] = {"stored": ee.load_vectors(store)}
    exec(recipe("pandas"), names)
    vectors = names["stored"].vectors
    for frame in (names["frame"], pandas.read_parquet(store)):
        assert list(frame.columns) == ["id", "embedding"]
        assert frame["id"].tolist() == [f"row-{i}" for i in range(60)]
        np.testing.assert_array_equal(np.stack(frame["embedding"]), vectors)
    monkeypatch.chdir(store.parent)


def test_a_folder_of_parquet_is_a_data_set(store: Path) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    assert dataset.dataset(str(store), format="parquet").count_rows() == 60


def test_duckdb_reads_shards_of_parquet(tiny: Embedder, store: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    query = tiny.encode("a question")
    found = duckdb.execute(
        f"SELECT id FROM '{store}/*.parquet' ORDER BY "
        "array_cosine_similarity(embedding::FLOAT[16], ?::FLOAT[16]) DESC LIMIT 1",
        [query.tolist()],
    ).fetchall()
    best = int(np.argmax(ee.load_vectors(store).vectors @ query))
    assert found == [(f"row-{best}",)]


def test_a_lance_file_becomes_a_dataset(tiny: Embedder, store: Path) -> None:
    lance = pytest.importorskip("lance", reason="pylance is not installed")
    tiny.encode_dataset(store.parent / "in.jsonl", store.parent / "x.lance", id_column="id")
    stored = ee.load_vectors(store.parent / "x.lance")
    lance.write_dataset(stored.to_arrow(), str(store.parent / "reviews.lance"))
    dataset = lance.dataset(str(store.parent / "reviews.lance"))
    assert dataset.to_table()["id"].to_pylist() == stored.ids
