"""The verbs that write beside stored vectors: quantize and mine-negatives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import Embedder, load_vectors
from encoder_engine.cli import main
from encoder_engine.embedding import MultiVectorEmbedder
from encoder_engine.embedding.any_model import load_dense
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = [f"text {letter} row {number}" for number, letter in enumerate("abcdefghijklmnop")]
DOCUMENTS += ["the answer a", "the answer a", "the question"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    model = write_sentence_directory(folder / "model")
    (folder / "d.txt").write_text("".join(f"{text}\n" for text in DOCUMENTS), "utf-8")
    embedder = Embedder.from_pretrained(model, device="cpu")
    embedder.encode_dataset(folder / "d.txt", folder / "v", shard_rows=10)
    return folder / "v"


def test_a_copy_is_searched_and_rescored(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for precision in ("int8", "ubinary"):
        out = str(tmp_path / f"{precision}.npy")
        assert main(["quantize", str(store), "-o", out, "--precision", precision]) == 0
        capsys.readouterr()
        command = ["search", str(store), "text c row 2", "--top", "3", "--json"]
        assert main([*command, "--quantized", out, "--oversampling", "7"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(command) == 0
        exact = json.loads(capsys.readouterr().out)
        assert [hit["row"] for hit in found["hits"]] == [hit["row"] for hit in exact["hits"]]
    both = ["--quantized", out, "--index", out]
    assert main([*command, *both]) == 2
    # Wrong whatever the store is.
    assert main(["search", str(tmp_path / "none"), "text", *both]) == 2
    assert main(["quantize", str(store), "-o", out]) == 1
    assert "exists" in capsys.readouterr().err


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_negatives_of_pairs_are_written_and_counted(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "p.jsonl"
    rows = [
        {"query": "the question", "positive": "the answer a"},
        {"query": "text d", "positive": "text d row 3"},
        {"query": "text d", "positive": "text e row 4"},
        {"query": "unknown", "positive": "no document"},
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    out = tmp_path / "n.jsonl"
    command = ["mine-negatives", str(store), str(pairs), "-o", str(out), "--negatives", "2"]
    assert main([*command, "--margin", "0.01"]) == 0
    shown = capsys.readouterr().out
    assert "without an answer in the store" in shown
    found = lines_of(out)
    assert [line["query"] for line in found] == ["the question", "text d"]
    assert found[0]["positives"] == ["the answer a"]
    assert found[1]["positives"] == ["text d row 3", "text e row 4"]
    vectors = load_vectors(store).vectors
    for line in found:
        assert not {"the answer a", "the question"} & set(line["negatives"]) or line is found[1]
        known = [row for row, text in enumerate(DOCUMENTS) if text in line["positives"]]
        assert not set(known) & set(line["rows"])
        assert [DOCUMENTS[row] for row in line["rows"]] == line["negatives"]
        assert line["scores"] == sorted(line["scores"], reverse=True)
    query = Embedder.from_pretrained(store.parent / "model", device="cpu").encode("text d")
    worst = (vectors[[3, 4]] @ query).min()
    assert all(score <= worst - 0.01 * abs(worst) + 1e-6 for score in found[1]["scores"])
    assert main(command) == 1
    assert "exists" in capsys.readouterr().err


def test_static_models_are_loaded_by_what_they_are(tmp_path: Path) -> None:
    table = load_dense(write_model2vec(tmp_path / "t"), device="auto")
    assert table.encode("the").shape == (37,)
    encoder = load_dense(write_sentence_directory(tmp_path / "e"), device="cpu")
    assert isinstance(encoder, Embedder)
    np.testing.assert_array_equal(encoder.encode("the").shape, (16,))


def test_vectors_of_tokens_are_not_searched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embedder = Embedder.from_pretrained(write_sentence_directory(tmp_path / "model"))
    (tmp_path / "d.txt").write_text("text a\nrow b\n", "utf-8")
    MultiVectorEmbedder(embedder).encode_dataset(tmp_path / "d.txt", tmp_path / "v")
    assert main(["search", str(tmp_path / "v"), "a"]) == 1
    assert "holds tokens results; this compares" in capsys.readouterr().err


def test_recall_counts_answers_among_the_first_results(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [
        {"query": "the question", "positive": "the answer a"},
        {"query": "text c row 2", "positive": "text c row 2"},
        {"query": "text d row 3", "positive": "text a row 0"},
        {"query": "no answer", "positive": "nowhere"},
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in pairs), "utf-8")
    command = ["recall", str(store), str(path), "--at", "1", "--at", "5", "--at", "19", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["questions"], found["without_answer"], found["documents"]) == (3, 1, 19)
    stored = load_vectors(store).vectors
    known = [[16, 17], [2], [0]]
    embedder = Embedder.from_pretrained(store.parent / "model", device="cpu")
    queries = embedder.encode([str(row["query"]) for row in pairs[:3]])
    recalls: dict[int, list[float]] = {1: [], 5: [], 19: []}
    ranks, terms = [], []
    for query, rows in zip(queries, known, strict=True):
        scores = stored.astype(np.float64) @ query.astype(np.float64)
        order = np.argsort(-scores.astype(np.float32), kind="stable").tolist()
        for depth, shares in recalls.items():
            shares.append(len(set(order[:depth]) & set(rows)) / len(rows))
        ranks.append(1.0 / (1 + min(order.index(row) for row in rows)))
        others = np.delete(20.0 * scores, rows)
        right = 20.0 * scores[rows]
        terms += (np.logaddexp(np.log(np.exp(others).sum()), right) - right).tolist()
    for depth, shares in recalls.items():
        assert found[f"recall@{depth}"] == 100 * np.mean(shares)
    assert found["recall@19"] == 100.0
    assert found["mrr"] == 100 * np.mean(ranks)
    # A term has two logits, sums of D products of size 20 at most, and a sum over N documents;
    # either side rounds them in its own order.
    num_rows, width = stored.shape
    rounding = 2 * (2 * width * 20.0 + num_rows) * np.finfo(np.float64).eps
    assert abs(found["loss"] - np.mean(terms)) <= rounding
    copy = str(tmp_path / "copy.npy")
    assert main(["quantize", str(store), "-o", copy]) == 0
    capsys.readouterr()
    assert main([*command, "--quantized", copy, "--oversampling", "8"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main([*command, "--quantized", copy, "--index", copy]) == 2
    assert main([*command, "--positive-column", "query"]) == 1
