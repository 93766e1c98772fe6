"""Jobs that write sparse rows, vectors of tokens and scores of pairs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine import Embedder, load_vectors
from encoder_engine.cli import main
from encoder_engine.embedding import MultiVectorEmbedder, Ranker, SparseEmbedder
from encoder_engine.errors import (
    InputError,
    OutputError,
    ReadError,
    ResumeError,
    RowError,
    SequenceLengthError,
)
from encoder_engine.models import MaskedLM, SequenceClassification
from tests.embedding.kill_long import contents
from tests.embedding.tiny_model import write_head_directory

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("pyarrow")
ROWS = [{"id": f"r{n}", "query": f"query {n % 5}", "text": f"text {n} row"} for n in range(60)]
TEXTS = [row["text"] for row in ROWS]
PAIRS = [(row["query"], row["text"]) for row in ROWS]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("in") / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return path


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_directory(tmp_path_factory.mktemp("masked"), MaskedLM)


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_directory(
        tmp_path_factory.mktemp("ranking"), SequenceClassification, num_labels=1
    )


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_directory(
        tmp_path_factory.mktemp("several"), SequenceClassification, num_labels=3
    )


def same_sparse(found: Any, expected: Any) -> None:
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.dimension == expected.dimension


@pytest.mark.parametrize("target", ["out", "out.parquet", "out.arrow"])
def test_sparse_rows_are_those_of_encode(
    masked: Path, source: Path, tmp_path: Path, target: str
) -> None:
    embedder = SparseEmbedder.from_pretrained(masked)
    out = tmp_path / target
    options: dict[str, Any] = {"shard_rows": 25} if target == "out" else {}
    summary = embedder.encode_dataset(source, out, max_active_dims=9, **options)
    assert summary.rows == 60
    stored = load_vectors(out)
    assert (stored.kind, stored.rows) == ("sparse", 60)
    expected = embedder.encode(TEXTS, max_active_dims=9)
    if target == "out":
        same_sparse(stored.sparse, expected)
    else:
        np.testing.assert_array_equal(stored.sparse.indices, expected.indices)
    with pytest.raises(InputError, match=r"read them by \.sparse"):
        list(stored.blocks())
    with pytest.raises(InputError, match="holds sparse results, not tokens"):
        _ = stored.tokens


def test_a_job_does_not_go_on_with_another_head(
    ranking: Path, source: Path, tmp_path: Path
) -> None:
    other = write_head_directory(tmp_path / "other", SequenceClassification, num_labels=1)
    model = SequenceClassification.from_pretrained(other, device="cpu")
    with torch.no_grad():
        model.head.output.get_parameter("weight").neg_()
    model.save_pretrained(other)
    Ranker.from_pretrained(ranking).score_dataset(source, tmp_path / "out")
    with pytest.raises(ResumeError, match="another model"):
        Ranker.from_pretrained(other).score_dataset(source, tmp_path / "out")


def test_a_sparse_job_resumes_and_refuses_other_options(
    masked: Path, source: Path, tmp_path: Path
) -> None:
    embedder = SparseEmbedder.from_pretrained(masked)
    embedder.encode_dataset(source, tmp_path / "a", shard_rows=25)
    embedder.encode_dataset(source, tmp_path / "b", shard_rows=25)
    (tmp_path / "b" / "part-00001.parquet").unlink()
    assert embedder.encode_dataset(source, tmp_path / "b", shard_rows=25).resumed_rows == 35
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    with pytest.raises(ResumeError, match="max_active_dims"):
        embedder.encode_dataset(source, tmp_path / "b", shard_rows=25, max_active_dims=3)
    with pytest.raises(OutputError, match=r"rows of one length, sparse results differ"):
        embedder.encode_dataset(source, tmp_path / "c.npy")
    for name in ("d.parquet", "d.arrow"):
        embedder.encode_dataset(source, tmp_path / name, max_active_dims=1)
        alone = load_vectors(tmp_path / name).sparse
        assert alone.dimension == embedder.dimension > alone.indices.max() + 1
        assert alone.search(embedder.encode_query(TEXTS[:1]), 3)
    with pytest.raises(OutputError, match="may not be called 'embedding'"):
        embedder.encode_dataset(source, tmp_path / "d", id_column="embedding")
    with pytest.raises(OutputError, match="may not be called 'values'"):
        embedder.encode_dataset(source, tmp_path / "d", id_column="values")
    with pytest.raises(TypeError, match="did you mean 'shard_rows'"):
        embedder.encode_dataset(source, tmp_path / "e", shard_row=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ["document", "query"])
def test_vectors_of_tokens_are_those_of_encode(
    tiny_directory: Path, source: Path, tmp_path: Path, kind: Any
) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu")
    projection = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
    many = MultiVectorEmbedder(embedder, projection, skipped=[2, 3])
    many.encode_dataset(source, tmp_path / "out", kind=kind, shard_rows=25, id_column="id")
    stored = load_vectors(tmp_path / "out")
    encode = many.encode_documents if kind == "document" else many.encode_queries
    expected, found = encode(TEXTS), stored.tokens
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.cu_seqlens, expected.cu_seqlens)
    # A text's batch decides its last bits, and a shard has fewer texts.
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
    assert stored.ids == [row["id"] for row in ROWS]


@pytest.mark.parametrize("target", ["out", "out.npy", "out.parquet"])
def test_scores_of_pairs_are_those_of_score(
    ranking: Path, source: Path, tmp_path: Path, target: str
) -> None:
    ranker = Ranker.from_pretrained(ranking)
    options: dict[str, Any] = {"shard_rows": 25} if target == "out" else {}
    ranker.score_dataset(source, tmp_path / target, **options)
    stored = load_vectors(tmp_path / target)
    np.testing.assert_allclose(stored.scores, ranker.score(PAIRS), atol=1e-6)
    assert stored.rows == 60


def test_scores_of_several_labels(several: Path, source: Path, tmp_path: Path) -> None:
    ranker = Ranker.from_pretrained(several)
    ranker.score_dataset(source, tmp_path / "out.parquet")
    found = load_vectors(tmp_path / "out.parquet").scores
    np.testing.assert_allclose(found, ranker.score(PAIRS), atol=1e-6)
    assert found.shape == (60, 3)


def test_a_changed_second_text_is_noticed(ranking: Path, source: Path, tmp_path: Path) -> None:
    ranker = Ranker.from_pretrained(ranking)
    ranker.score_dataset(source, tmp_path / "out", shard_rows=25)
    changed = tmp_path / "b.jsonl"
    changed.write_text(source.read_text().replace("text 30 row", "text 31 row"))
    with pytest.raises(ResumeError, match="rows 26 to 50"):
        ranker.score_dataset(changed, tmp_path / "out", shard_rows=25)


def test_a_pair_needs_both_texts(ranking: Path, source: Path, tmp_path: Path) -> None:
    ranker = Ranker.from_pretrained(ranking)
    with pytest.raises(RowError, match=r"no column 'answer'.*pair_column="):
        ranker.score_dataset(source, tmp_path / "out", pair_column="answer")
    (tmp_path / "n.jsonl").write_text('{"query": "a", "text": null}\n')
    with pytest.raises(RowError, match="text is null"):
        ranker.score_dataset(tmp_path / "n.jsonl", tmp_path / "o1")
    (tmp_path / "l.jsonl").write_text(json.dumps({"query": "a", "text": "long " * 60}) + "\n")
    with pytest.raises(SequenceLengthError):
        ranker.score_dataset(tmp_path / "l.jsonl", tmp_path / "o2", on_truncation="error")
    with pytest.raises(InputError, match="also another column"):
        ranker.score_dataset(source, tmp_path / "o3", column="text")


@pytest.mark.slow
def test_tasks_run_in_several_processes(
    masked: Path, ranking: Path, source: Path, tmp_path: Path
) -> None:
    sparse, ranker = SparseEmbedder.from_pretrained(masked), Ranker.from_pretrained(ranking)
    for number in (1, 2):
        sparse.encode_dataset(source, tmp_path / f"s{number}", shard_rows=25, workers=number)
        ranker.score_dataset(source, tmp_path / f"r{number}", shard_rows=25, workers=number)
    assert contents(tmp_path / "s1") == contents(tmp_path / "s2")
    assert contents(tmp_path / "r1") == contents(tmp_path / "r2")


def test_several_processes_follow_settings_that_were_changed_after_loading(
    masked: Path, ranking: Path, source: Path, tmp_path: Path
) -> None:
    sparse, ranker = SparseEmbedder.from_pretrained(masked), Ranker.from_pretrained(ranking)
    sparse.max_seq_length = ranker.max_seq_length = 5
    ranker.activation = "identity"
    for number in (1, 2):
        sparse.encode_dataset(source, tmp_path / f"s{number}", shard_rows=25, workers=number)
        ranker.score_dataset(source, tmp_path / f"r{number}", shard_rows=25, workers=number)
    assert contents(tmp_path / "s1") == contents(tmp_path / "s2")
    assert contents(tmp_path / "r1") == contents(tmp_path / "r2")


def test_the_command_line_has_the_tasks(
    masked: Path, ranking: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(source), "--quiet", "-o"]
    out = str(tmp_path / "s")
    assert main(["embed", *files, out, "-m", str(masked), "--task", "sparse"]) == 0
    assert load_vectors(out).kind == "sparse"
    out = str(tmp_path / "r.npy")
    assert main(["embed", *files, out, "-m", str(ranking), "--task", "scores"]) == 0
    expected = Ranker.from_pretrained(ranking).score(PAIRS)
    np.testing.assert_allclose(load_vectors(out).scores, expected, atol=1e-6)
    for options, message in (
        (["--task", "sparse", "--pooling", "cls"], "--pooling is an option of --task dense"),
        (["--task", "sparse", "--precision", "binary"], "--precision is an option"),
        (["--task", "dense", "--max-active-dims", "3"], "is an option of --task sparse"),
        # Queries were embedded as documents, and nothing was said.
        (["--kind", "query"], "--kind is an option of --task tokens"),
        (["--task", "tokens", "--prompt", "a"], "leave --prompt out"),
    ):
        assert main(["embed", *files, str(tmp_path / "x"), "-m", "m", *options]) == 2
        assert message in capsys.readouterr().err


def test_a_table_with_other_columns_is_named(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ReadError, match="none of embed's"):
        _ = load_vectors(tmp_path / "x.parquet").kind
