"""``encoder-engine search`` over sparse stores, and over two stores whose ranks are joined."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.embedding import (
    Embedder,
    Hit,
    SparseEmbedder,
    fuse_ranks,
    load_vectors,
    search_vectors,
)
from encoder_engine.errors import InputError
from encoder_engine.models import MaskedLM
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory
from tests.opening.test_sparse_layouts import routed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

TEXTS = [f"text {row}" for row in range(40)] + ["the row", "long words", "a query"]
QUERIES = ["the row", "long words 7"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_directory(tmp_path_factory.mktemp("masked"), MaskedLM)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl", TEXTS)


def write(path: Path, texts: list[str]) -> Path:
    rows = [json.dumps({"id": f"row-{i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def stores(run: Run, model: Path, masked: Path, source: Path, tmp_path: Path) -> dict[str, Path]:
    """Run a job for dense and one for sparse vectors, with other shards and with ids."""
    common = ["embed", source, "--id-column", "id", "--quiet"]
    dense, sparse = tmp_path / "dense", tmp_path / "sparse"
    assert run(*common, "-o", dense, "-m", model, "--shard-rows", 9).code == 0
    options = ["--task", "sparse", "--shard-rows", 25, "--prompt-name", "document"]
    assert run(*common, "-o", sparse, "-m", masked, *options).code == 0
    return {"dense": dense, "sparse": sparse}


def hits_of(output: str) -> list[list[dict[str, Any]]]:
    return [json.loads(line)["hits"] for line in output.splitlines()]


def test_a_sparse_store_is_searched(
    run: Run, stores: dict[str, Path], masked: Path, source: Path, tmp_path: Path
) -> None:
    embedder = SparseEmbedder.from_pretrained(masked)
    documents, queries = embedder.encode_document(TEXTS), embedder.encode_query(QUERIES)
    expected = documents.search(queries, 5)
    found = run("search", stores["sparse"], *QUERIES, "--top", 5, "--json")
    assert (found.code, found.errors) == (0, "")
    for hits, best in zip(hits_of(found.output), expected, strict=True):
        assert [(hit["row"], hit["score"]) for hit in hits] == [(b.row, b.score) for b in best]
        assert all(hit["identifier"] == f"row-{hit['row']}" for hit in hits)
    # A file does not name its model.
    alone = tmp_path / "s.parquet"
    command = ["embed", source, "-o", alone, "-m", masked, "--task", "sparse", "--quiet"]
    assert run(*command).code == 0
    assert "--model" in run("search", alone, "a").errors
    named = run("search", alone, *QUERIES, "-m", masked, "--top", 5, "--json")
    assert [[hit["row"] for hit in hits] for hits in hits_of(named.output)] == [
        [hit.row for hit in best] for best in expected
    ]
    assert run("search", stores["sparse"], "a", "--quantized", alone).code == 2
    assert run("search", stores["sparse"], "a", "--pooling", "cls").code != 0
    other = write_head_directory(tmp_path / "other", MaskedLM)
    changed = MaskedLM.from_pretrained(other, device="cpu")
    changed.encoder.embedding.tokens.weight.data[5, 0] += 1
    changed.save_pretrained(other)
    assert "weights differ" in run("search", stores["sparse"], "a", "-m", other).errors


def test_queries_of_an_inference_free_store_are_looked_up(
    run: Run, source: Path, tmp_path: Path
) -> None:
    path = routed(tmp_path / "routed")
    embedder = SparseEmbedder.from_pretrained(path)
    assert embedder.query_weights is not None
    embedder.encode_dataset(source, tmp_path / "out")
    found = run("search", tmp_path / "out", *QUERIES, "--top", 3, "--json")
    expected = embedder.encode_document(TEXTS).search(embedder.encode_query(QUERIES), 3)
    assert [[hit["row"] for hit in hits] for hits in hits_of(found.output)] == [
        [hit.row for hit in best] for best in expected
    ]


def test_two_stores_are_joined_by_reciprocal_rank(
    run: Run, stores: dict[str, Path], model: Path, masked: Path
) -> None:
    dense, sparse = load_vectors(stores["dense"]), load_vectors(stores["sparse"])
    embedder, weigher = Embedder.from_pretrained(model), SparseEmbedder.from_pretrained(masked)
    rankings = (
        search_vectors(dense, embedder.encode(QUERIES), 12),
        search_vectors(sparse, weigher.encode_query(QUERIES), 12),
    )
    # By hand: 1 / (60 + rank) of each ranking that has the row.
    for first, second in zip(*rankings, strict=True):
        scores: dict[str, float] = {}
        for ranking in (first, second):
            for rank, hit in enumerate(ranking, start=1):
                name = str(hit.identifier)
                scores[name] = scores.get(name, 0.0) + 1 / (60 + rank)
        best = fuse_ranks((first, second), 3)
        assert [hit.identifier for hit in best] == sorted(
            scores, key=lambda name: (-scores[name], int(name.removeprefix("row-")))
        )[:3]
        assert [hit.score for hit in best] == [scores[str(hit.identifier)] for hit in best]
    expected = [fuse_ranks(pair, 3) for pair in zip(*rankings, strict=True)]
    for first_store, second_store in (("dense", "sparse"), ("sparse", "dense")):
        found = run(
            "search",
            stores[first_store],
            *QUERIES,
            "--fuse",
            stores[second_store],
            "--top",
            3,
            "--oversampling",
            4,
            "--json",
        )
        assert (found.code, found.errors) == (0, "")
        for hits, wanted in zip(hits_of(found.output), expected, strict=True):
            assert [(hit["row"], hit["identifier"], hit["score"]) for hit in hits] == [
                (hit.row, hit.identifier, hit.score) for hit in wanted
            ]


def test_inputs_of_one_name_are_compared_by_their_texts(
    run: Run, model: Path, masked: Path, tmp_path: Path
) -> None:
    path, moved = tmp_path / "in.txt", tmp_path / "same.txt"
    path.write_text("\n".join(TEXTS), "utf-8")
    assert run("embed", path, "-o", tmp_path / "dense", "-m", model, "--quiet").code == 0
    sparse = ["embed", "-m", masked, "--task", "sparse", "--quiet"]
    # Shards of other sizes have digests of other rows: names alone tell.
    assert run(*sparse, path, "-o", tmp_path / "shards", "--shard-rows", 9).code == 0
    path.rename(moved)
    assert run(*sparse, moved, "-o", tmp_path / "renamed").code == 0
    path.write_text("\n".join(reversed(TEXTS)), "utf-8")
    assert run(*sparse, path, "-o", tmp_path / "rewritten").code == 0
    for name, code in (("renamed", 0), ("rewritten", 1), ("shards", 0)):
        assert run("search", tmp_path / "dense", "a", "--fuse", tmp_path / name).code == code, name


def test_streams_of_one_name_are_not_taken_for_the_same_texts(
    run: Run, model: Path, masked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse: list[object] = ["--task", "sparse", "--shard-rows", 9]
    jobs: list[tuple[str, Path, list[object]]] = [("dense", model, []), ("sparse", masked, sparse)]
    for name, made_by, options in jobs:
        stream = io.BytesIO("\n".join(TEXTS).encode())
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        command = ["embed", "-", "-o", tmp_path / name, "-m", made_by, "--quiet", *options]
        assert run(*command).code == 0
    found = run("search", tmp_path / "dense", "a", "--fuse", tmp_path / "sparse")
    assert (found.code, "nothing says" in found.errors) == (1, True)


def test_queries_of_the_second_store_have_its_prompt(
    run: Run, stores: dict[str, Path], source: Path, tmp_path: Path
) -> None:
    prompts = {"prompts": {"query": "long words ", "document": ""}}
    model = write_sentence_directory(tmp_path / "prompted", settings=prompts)
    command = ["embed", source, "--id-column", "id", "--quiet", "-o", tmp_path / "out"]
    assert run(*command, "-m", model).code == 0
    embedder, store = Embedder.from_pretrained(model), load_vectors(tmp_path / "out")
    prompted = search_vectors(store, embedder.encode_query(QUERIES), 12)
    assert prompted != search_vectors(store, embedder.encode(QUERIES), 12)
    first = run("search", stores["sparse"], *QUERIES, "--top", 12, "--json")
    found = run(
        "search",
        stores["sparse"],
        *QUERIES,
        "--fuse",
        tmp_path / "out",
        "--top",
        3,
        "--oversampling",
        4,
        "--json",
    )
    for hits, sparse, dense in zip(
        hits_of(found.output), hits_of(first.output), prompted, strict=True
    ):
        expected = fuse_ranks([[Hit(**hit) for hit in sparse], dense], 3)
        assert [Hit(**hit) for hit in hits] == expected


def test_stores_of_other_texts_are_not_joined(
    run: Run, stores: dict[str, Path], model: Path, masked: Path, source: Path, tmp_path: Path
) -> None:
    write(tmp_path / "short.jsonl", TEXTS[:-1])
    rows = (tmp_path / "in.jsonl").read_text("utf-8").splitlines()
    rows[:2] = reversed(rows[:2])
    (tmp_path / "moved.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    embed = ["embed", "-m", masked, "--task", "sparse", "--quiet"]
    for name, message in (("short", "has 42"), ("moved", "row 0 has the id")):
        path = tmp_path / f"{name}.jsonl"
        assert run(*embed, path, "-o", tmp_path / name, "--id-column", "id").code == 0
        found = run("search", stores["dense"], "a", "--fuse", tmp_path / name)
        assert (found.code, message in found.errors) == (1, True), found.errors
    # Without ids, the inputs decide.
    dense = ["embed", "-m", model, source, "--quiet"]
    assert run(*dense, "-o", tmp_path / "plain").code == 0
    assert run(*embed, source, "-o", tmp_path / "same").code == 0
    assert run(*embed, tmp_path / "moved.jsonl", "-o", tmp_path / "others").code == 0
    assert run("search", tmp_path / "plain", "a", "--fuse", tmp_path / "same").code == 0
    found = run("search", tmp_path / "plain", "a", "--fuse", tmp_path / "others")
    assert (found.code, "made of different texts" in found.errors) == (1, True)
    found = run("search", stores["dense"], "a", "--fuse", tmp_path / "same")
    assert (found.code, "embed both with --id-column" in found.errors) == (1, True)
    alone = tmp_path / "alone.parquet"
    assert run(*embed, source, "-o", alone).code == 0
    found = run("search", tmp_path / "plain", "a", "--fuse", alone, "-m", masked)
    assert (found.code, "or the file first" in found.errors) == (1, True)
    found = run("search", alone, "a", "--fuse", tmp_path / "plain", "-m", masked)
    assert (found.code, "nothing says" in found.errors) == (1, True)
    with pytest.raises(InputError, match="holds sparse results"):
        search_vectors(
            load_vectors(stores["sparse"]), Embedder.from_pretrained(model).encode(QUERIES), 3
        )
    queries = SparseEmbedder.from_pretrained(masked).encode_query(QUERIES)
    with pytest.raises(InputError, match="holds dense results, not sparse"):
        search_vectors(load_vectors(stores["dense"]), queries, 3)
