"""``encoder-engine search``: exactly the nearest rows of what ``embed`` wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.embedding import Embedder, store_files
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = [f"text {row}" for row in range(40)] + ["the row"] * 3
QUERIES = ["the row", "long words 7"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    rows = [json.dumps({"id": f"row-{i}", "text": text}) for i, text in enumerate(TEXTS)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["npy", "parquet", "arrow", "lance"])
@pytest.mark.parametrize("sharded", [True, False])
def test_the_nearest_rows_are_found(
    run: Run,
    model: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    sharded: bool,
) -> None:
    if kind != "npy":
        pytest.importorskip("pyarrow")
    if kind == "lance":
        pytest.importorskip(
            "lance", reason="pylance is not installed; it comes with the extra lance"
        )
    monkeypatch.setattr(store_files, "BLOCK_ROWS", 4)
    store = tmp_path / ("out" if sharded else f"out.{kind}")
    options = ["--shard-rows", 9, "--shard-format", kind] if sharded else []
    embed = ["embed", source, "-o", store, "-m", model, "--id-column", "id", "--quiet"]
    assert run(*embed, *options).code == 0
    named = [] if sharded else ["--model", model]
    result = run("search", store, *QUERIES, *named, "--top", 5, "--json")
    assert (result.code, result.errors) == (0, "")
    embedder = Embedder.from_pretrained(model)
    scores = embedder.encode(QUERIES) @ embedder.encode(TEXTS).T
    for line, query, row_scores in zip(result.output.splitlines(), QUERIES, scores, strict=True):
        found = json.loads(line)
        assert found["query"] == query
        got = [hit["score"] for hit in found["hits"]]
        # Blocks add up in another order: two sums of 16 products below 1, rounded each time.
        rounding = 2 * 16 * float(np.finfo(np.float32).eps) / 2
        np.testing.assert_allclose(got, np.sort(row_scores)[::-1][:5], rtol=0, atol=rounding)
        assert [hit["identifier"] for hit in found["hits"]] == [
            f"row-{hit['row']}" for hit in found["hits"]
        ]
    first = json.loads(result.output.splitlines()[0])["hits"]
    assert [hit["row"] for hit in first[:3]] == [40, 41, 42]
    plain = run("search", store, QUERIES[0], *named, "--top", 2)
    assert "1.0000  row-40" in plain.output


def test_queries_are_embedded_by_the_layers_that_made_the_store(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    first = Embedder.from_pretrained(model, layers=[0])
    first.encode_dataset(source, tmp_path / "out", id_column="id", shard_rows=9)
    hits = json.loads(run("search", tmp_path / "out", "the row", "-m", model, "--json").output)
    # A text's vector times itself, where the model's vectors have length 1.
    assert hits["hits"][0]["score"] == pytest.approx(1.0, abs=1e-6)


def test_another_tokenizer_is_refused(run: Run, model: Path, source: Path, tmp_path: Path) -> None:
    assert run("embed", source, "-o", tmp_path / "out", "-m", model, "--quiet").code == 0
    other = write_sentence_directory(tmp_path / "other")
    (path,) = other.rglob("vocab.txt")
    words = path.read_text("utf-8").split("\n")
    words[-3:-1] = reversed(words[-3:-1])
    path.write_text("\n".join(words), encoding="utf-8")
    result = run("search", tmp_path / "out", "a", "-m", other)
    assert (result.code, "tokenizers differ" in result.errors) == (1, True)


def test_stores_that_cannot_be_searched_are_refused(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run("embed", source, "-o", out, "-m", model, "--quiet").code == 0
    other = write_sentence_directory(tmp_path / "other")
    embedder = Embedder.from_pretrained(other)
    embedder.encoder.embedding.tokens.weight.data[5, 0] += 1
    embedder.encoder.save_pretrained(other)
    result = run("search", out, "a", "-m", other)
    assert (result.code, "weights differ" in result.errors) == (1, True)
    (out / "_manifest.json").unlink()
    assert "not whole" in run("search", out, "a").errors
    bits = tmp_path / "bits.npy"
    run("embed", source, "-o", bits, "-m", model, "--quiet", "--precision", "ubinary")
    assert "stored in bits" in run("search", bits, "a", "-m", model).errors
    assert "--model" in run("search", bits, "a").errors
    np.save(tmp_path / "wide.npy", np.zeros((2, 99), np.float32))
    assert "99 features" in run("search", tmp_path / "wide.npy", "a", "-m", model).errors
    for shape in ((), (16,), (2, 4, 4)):
        np.save(tmp_path / "flat.npy", np.zeros(shape, np.float32))
        found = run("search", tmp_path / "flat.npy", "a", "-m", model)
        assert (found.code, "must hold rows of vectors [N, D]" in found.errors) == (1, True)
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    assert "damaged" in run("search", tmp_path / "broken.npy", "a", "-m", model).errors
    assert "no file of vectors" in run("search", tmp_path / "none.npy", "a", "-m", model).errors
