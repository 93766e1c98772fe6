"""``encoder-engine search``: exactly the nearest rows of what ``embed`` wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.embedding import Embedder
from encoder_engine.models import Encoder
from encoder_engine.vectors import store_files
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


def test_queries_have_the_prompt_of_queries(run: Run, source: Path, tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "long words ", "document": ""}}
    prompted = write_sentence_directory(tmp_path / "prompted", settings=prompts)
    command = ["embed", source, "-o", tmp_path / "out", "-m", prompted, "--quiet"]
    assert run(*command).code == 0
    embedder, query = Embedder.from_pretrained(prompted), QUERIES[0]
    documents = embedder.encode(TEXTS)
    scores = {}
    for given in ([], ["--prompt", "text "], ["--prompt", ""]):
        found = run("search", tmp_path / "out", query, *given, "--top", 1, "--json")
        scores[given[-1] if given else "long words "] = json.loads(found.output)["hits"][0]["score"]
    for prompt, score in scores.items():
        expected = (documents @ embedder.encode(query, prompt=prompt)).max()
        # Two sums of 16 products below 1, rounded each time.
        assert abs(score - expected) <= 2 * 16 * float(np.finfo(np.float32).eps) / 2
    assert len(set(scores.values())) == 3


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
    embedder = Embedder.from_pretrained(other, engine="torch")
    assert isinstance(embedder.encoder, Encoder)
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
    assert "not a file of vectors" in run("search", tmp_path / "none.npy", "a", "-m", model).errors


def test_a_flipped_bit_and_a_changed_manifest_are_refused(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert run("embed", source, "-o", out, "-m", model, "--shard-rows", 9, "--quiet").code == 0
    shard, manifest = out / "part-00001.npy", out / "_manifest.json"
    whole, told = shard.read_bytes(), manifest.read_text("utf-8")
    damaged = bytearray(whole)
    damaged[200] ^= 64
    shard.write_bytes(damaged)
    for command in (("search", out, "a"), ("plot", out, "-o", tmp_path / "m.html", "--no-texts")):
        result = run(*command)
        assert (result.code, "part-00001.npy is not as it was written" in result.errors) == (
            1,
            True,
        )
    shard.unlink()
    assert "part-00001.npy is not a file of vectors" in run("search", out, "a").errors
    shard.write_bytes(whole)
    assert run("search", out, "a").code == 0
    for old, new in (
        ('"part-00001.npy"', '"../outside.npy"'),
        ('"normalized": true', '"normalized": false'),
        ('"rows": 9', '"rows": "9"'),
        ('"shards": [', '"shards": 7, "x": ['),
        ('"plan": {', '"plan": [], "x": {'),
    ):
        assert old in told
        manifest.write_text(told.replace(old, new, 1), "utf-8")
        result = run("search", out, "a")
        assert (result.code, "_manifest.json is damaged" in result.errors) == (1, True)
        assert "unexpected" not in result.errors


def test_a_file_of_numbers_that_are_no_vectors_is_refused(
    run: Run, model: Path, tmp_path: Path
) -> None:
    path, vectors = tmp_path / "v.npy", np.ones((5, 16), np.float32)
    search = ("search", path, "a", "-m", model)
    for value in (np.nan, np.inf):
        vectors[3, 7] = value
        np.save(path, vectors)
        result = run(*search)
        assert (result.code, "row 3" in result.errors) == (1, True), result.errors
    np.save(path, np.ones((5, 16), np.float32))
    for ids in ("a\nb\nc\nd\n", "a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\ne"):
        (tmp_path / "v.ids.txt").write_text(ids)
        assert run(*search).code == 1
    (tmp_path / "v.ids.txt").write_text("a\nb\nc\nd\ne\n")
    assert run(*search).code == 0
    with path.open("ab") as file:
        file.write(b"more")
    assert "4 bytes follow its vectors" in run(*search).errors
    np.save(path, np.ones((5, 16)))
    assert "cast the vectors to float32" in run(*search).errors


def test_another_model_is_told_before_anything_of_it(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    """A limit that the other model cannot place was what the error told of."""
    from tests.embedding.tiny_model import write_json

    options = ("--max-seq-length", 30, "--quiet")
    assert run("embed", source, "-o", tmp_path / "out", "-m", model, *options).code == 0
    other = write_sentence_directory(tmp_path / "other")
    encoder = Encoder.from_pretrained(other)
    encoder.embedding.tokens.weight.data[5, 0] += 1
    encoder.save_pretrained(other)
    write_json(other / "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": False})
    result = run("search", tmp_path / "out", "a", "-m", other)
    assert f"{other} is not the model that made {tmp_path / 'out'}" in result.errors
    assert run("search", tmp_path / "out", "a").code == 0
    told = run("search", tmp_path / "out", "a", "--pooling", "cls")
    assert (told.code, "leave --pooling out" in told.errors) == (1, True)


def test_a_files_queries_are_pooled_as_it_was(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    options = ("-m", model, "--pooling", "cls", "--max-seq-length", 20)
    assert run("embed", source, "-o", tmp_path / "v.npy", *options, "--quiet").code == 0
    result = run("search", tmp_path / "v.npy", "the row", *options, "--json")
    assert json.loads(result.output)["hits"][0]["score"] == pytest.approx(1.0, abs=1e-6)
    embedder = Embedder.from_pretrained(model, pooling="cls", max_seq_length=20)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), embedder.encode(TEXTS))


def test_vectors_of_other_lengths_are_warned_of(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    """A masked language model's vectors gave scores of 45, and nothing was said."""
    for option, said in (("--no-normalize", "favour long vectors"), ("--normalize", "")):
        out = tmp_path / option
        embed = ["embed", source, "-o", f"{out}/", "-m", model, option, "--quiet"]
        assert run(*embed).code == 0
        result = run("search", out, "the row")
        assert result.code == 0
        assert said in result.errors
        assert bool(said) == bool(result.errors)
