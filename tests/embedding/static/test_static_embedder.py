"""Static embedders: options, jobs, and what they refuse."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import EmbedBatch, Embedder, StaticEmbedder, _native, load_vectors
from encoder_engine.cli import main
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    InputError,
    NonFiniteWeightsError,
    SequenceLengthError,
    TensorNamesError,
    TensorShapeError,
    TextError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.writing import write_tensors
from encoder_engine.inference.static_table import StaticTable
from tests.embedding.kill_long import contents
from tests.embedding.static.static_models import (
    TEXTS,
    WIDTH,
    table,
    write_library_directory,
    write_model2vec,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model2vec(tmp_path_factory.mktemp("static"))


@pytest.fixture(scope="module")
def embedder(directory: Path) -> StaticEmbedder:
    return StaticEmbedder.from_pretrained(directory)


def test_forms_of_texts_and_vectors(embedder: StaticEmbedder) -> None:
    every = embedder.encode(TEXTS)
    assert every.shape == (len(TEXTS), WIDTH)
    assert embedder.encode(TEXTS[0]).shape == (WIDTH,)
    assert embedder.encode([]).shape == (0, WIDTH)
    np.testing.assert_array_equal(embedder.encode(text for text in TEXTS), every)
    np.testing.assert_array_equal(embedder.encode(TEXTS, output="torch").numpy(), every)
    np.testing.assert_array_equal(embedder.encode(TEXTS, convert_to_tensor=True).numpy(), every)
    assert embedder.encode(TEXTS, precision="ubinary").shape == (len(TEXTS), -(-WIDTH // 8))
    windows = list(embedder.encode_windows(TEXTS * 1000))
    assert [len(window.vectors) for window in windows] == [4096, 4096, len(TEXTS) * 1000 - 8192]
    np.testing.assert_array_equal(windows[0].vectors[: len(TEXTS)], every)


@pytest.mark.parametrize("dimension", [1, 8, 16, 33, WIDTH])
def test_leading_features_are_those_of_the_whole(embedder: StaticEmbedder, dimension: int) -> None:
    whole = embedder.encode(TEXTS, normalize_embeddings=False)
    found = embedder.encode(TEXTS, normalize_embeddings=False, truncate_dim=dimension)
    np.testing.assert_allclose(found, whole[:, :dimension], atol=1e-7)
    cut = embedder.encode(TEXTS[:2], truncate_dim=dimension)
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("instruction_set", _native.supported_instruction_sets())
def test_every_instruction_set_and_number_of_threads_gives_these_vectors(
    directory: Path, instruction_set: str, tmp_path: Path
) -> None:
    script = (
        "import sys, numpy as np\n"
        "from encoder_engine import StaticEmbedder\n"
        "for dtype in ('float32', 'float16', 'bfloat16', 'int8'):\n"
        "    embedder = StaticEmbedder.from_pretrained(sys.argv[1])\n"
        "    embedder.save_pretrained(sys.argv[2], dtype=dtype)\n"
        "    for threads in (1, 3):\n"
        "        found = StaticEmbedder.from_pretrained(sys.argv[2], num_threads=threads)\n"
        "        np.save(f'{sys.argv[3]}.{dtype}.{threads}.npy', found.encode(eval(sys.argv[4])))\n"
    )
    out = tmp_path / "found"
    texts = TEXTS * 30
    subprocess.run(
        [sys.executable, "-c", script, directory, tmp_path / "saved", out, repr(texts)],
        env=os.environ | {"ENCODER_ENGINE_ISA": instruction_set},
        check=True,
    )
    for dtype in ("float32", "float16", "bfloat16", "int8"):
        one, three = (np.load(f"{out}.{dtype}.{threads}.npy") for threads in (1, 3))
        np.testing.assert_array_equal(one, three)
        StaticEmbedder.from_pretrained(directory).save_pretrained(tmp_path / "again", dtype=dtype)
        here = StaticEmbedder.from_pretrained(tmp_path / "again").encode(texts)
        np.testing.assert_allclose(one, here, atol=1e-6)


def test_long_texts_are_counted(directory: Path, embedder: StaticEmbedder) -> None:
    with pytest.warns(TruncationWarning, match=r"1 of 9 texts were longer than 512 tokens"):
        embedder.encode(TEXTS, on_truncation="warn")
    with pytest.raises(SequenceLengthError) as caught:
        embedder.encode(TEXTS, on_truncation="error")
    assert caught.value.row == 4
    whole = StaticEmbedder.from_pretrained(directory, max_length=None)
    assert whole.max_seq_length is None
    whole.encode(TEXTS, on_truncation="error")
    assert embedder.with_max_length(None).max_seq_length is None


def test_a_saved_table_keeps_its_limit_and_its_rules(directory: Path, tmp_path: Path) -> None:
    library = write_library_directory(tmp_path / "library", max_length=5)
    target = tmp_path / "saved"
    for source, rules, limit in (
        (directory, "model2vec", 2),
        (library, "sentence-transformers", 2),
        (library, "sentence-transformers", None),
    ):
        kept = StaticEmbedder.from_pretrained(source, max_length=limit)
        # Over the directory of the one before.
        kept.save_pretrained(target)
        again = StaticEmbedder.from_pretrained(target)
        assert (again.model.settings.rules, again.max_seq_length) == (rules, limit)
        np.testing.assert_array_equal(again.encode(TEXTS), kept.encode(TEXTS))


def test_coverage_counts_what_is_left_out(embedder: StaticEmbedder) -> None:
    found = embedder.coverage(["the text", "\u4e16\u754c", "the \u4e16"])
    assert (found.num_tokens, found.num_unknown, found.num_empty) == (6, 3, 1)


@pytest.mark.slow
def test_jobs_over_files_write_these_vectors(
    embedder: StaticEmbedder, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"text {row}\n" for row in range(500)), "utf-8")
    texts = [f"text {row}" for row in range(500)]
    embedder.encode_dataset(tmp_path / "a.txt", tmp_path / "one", shard_rows=200)
    summary = embedder.encode_dataset(
        tmp_path / "a.txt", tmp_path / "two", shard_rows=200, workers=2
    )
    assert (summary.rows, summary.workers, summary.dimension) == (500, 2, WIDTH)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    stored = load_vectors(tmp_path / "one")
    np.testing.assert_array_equal(stored.vectors, embedder.encode(texts))
    assert stored.manifest is not None
    assert stored.manifest["plan"]["model"]["engine"] == "static"
    (tmp_path / "one" / "part-00001.npy").unlink()
    assert (
        embedder.encode_dataset(tmp_path / "a.txt", tmp_path / "one", shard_rows=200).resumed_rows
        == 300
    )


def test_embed_batch_takes_static_models(directory: Path, embedder: StaticEmbedder) -> None:
    step = pickle.loads(pickle.dumps(EmbedBatch(directory)))
    found = step({"text": TEXTS[:2]})
    np.testing.assert_array_equal(found["embedding"], embedder.encode(TEXTS[:2]))
    assert step.dimension == WIDTH
    with pytest.raises(InputError, match="static table"):
        EmbedBatch(directory, quantization="int8")({"text": ["a"]})


def test_the_command_line_embeds_and_searches(
    directory: Path, embedder: StaticEmbedder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("the query\nrow\nlong words\n", "utf-8")
    out = f"{tmp_path}/out/"
    assert main(["embed", f"{tmp_path}/a.txt", "-o", out, "-m", str(directory), "--quiet"]) == 0
    np.testing.assert_array_equal(
        load_vectors(out).vectors, embedder.encode(["the query", "row", "long words"])
    )
    capsys.readouterr()
    assert main(["search", out, "long words", "--top", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["row"] == 2
    assert (
        main(
            [
                "embed",
                f"{tmp_path}/a.txt",
                "-o",
                out,
                "-m",
                str(directory),
                "--overwrite",
                "--dtype",
                "bfloat16",
            ]
        )
        == 1
    )
    assert "static table" in capsys.readouterr().err


def test_queries_documents_and_similarity(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "query ", "document": "passage "}}
    embedder = StaticEmbedder.from_pretrained(write_library_directory(tmp_path, settings=prompts))
    np.testing.assert_array_equal(embedder.encode_query(["a"]), embedder.encode(["query a"]))
    np.testing.assert_array_equal(embedder.encode_document(["a"]), embedder.encode(["passage a"]))
    vectors = embedder.encode(["a", "b"])
    np.testing.assert_allclose(np.diag(embedder.similarity(vectors, vectors)), 1, atol=1e-6)


def test_an_encoder_and_a_table_name_each_other(directory: Path, tmp_path: Path) -> None:
    write_library_directory(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match=r"StaticEmbedder\.from_pretrained loads"):
        Embedder.from_pretrained(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnsupportedFeatureError, match=r"Embedder\.from_pretrained loads"):
        StaticEmbedder.from_pretrained(tmp_path / "empty")


def damaged(folder: Path, **tensors: Any) -> Path:
    write_model2vec(folder)
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    count = (
        len(table(1))
        and StaticEmbedder.from_pretrained(write_model2vec(tmp_path / "whole")).model.table.num_ids
    )
    broken = table(count)
    broken[7, 3] = np.nan
    mapping = np.arange(count)
    for number, (error, message, tensors) in enumerate(
        [
            (NonFiniteWeightsError, "the first is row 7", {"embeddings": broken}),
            (TensorNamesError, "exactly one of", {"other": table(count)}),
            (TensorNamesError, "exactly one of", {"embeddings": table(count), "x": mapping}),
            (TensorShapeError, "beyond the table", {"embeddings": table(3), "mapping": mapping}),
            (CheckpointFileError, "is int32", {"embeddings": table(count).astype(np.int32)}),
            (
                TensorShapeError,
                "a number for each token",
                {"embeddings": table(count), "mapping": mapping, "weights": np.ones(3)},
            ),
            (
                TensorShapeError,
                f"have {count} weights and {count - 5} rows",
                {"embeddings": table(count - 5), "weights": np.ones(count)},
            ),
            (CheckpointFileError, "negative", {"embeddings": table(count), "mapping": mapping - 1}),
        ]
    ):
        with pytest.raises(error, match=message):
            StaticEmbedder.from_pretrained(damaged(tmp_path / str(number), **tensors))


def test_options_that_mean_nothing_are_refused(embedder: StaticEmbedder, directory: Path) -> None:
    with pytest.raises(InputError, match="truncate_dim"):
        embedder.encode(["a"], truncate_dim=WIDTH + 1)
    with pytest.raises(InputError, match="encode_tokens"):
        embedder.encode(["a"], output_value="token_embeddings")
    with pytest.raises(TypeError, match="batch_size"):
        embedder.encode(["a"], batch_sise=3)  # type: ignore[call-overload]
    with pytest.raises(TextError, match="text 1 has a lone surrogate"):
        embedder.encode(["a", "\ud800"])
    with pytest.raises(ConfigError, match="rules"):
        StaticEmbedder.from_pretrained(directory, rules="bogus")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_length"):
        StaticEmbedder.from_pretrained(directory, max_length=0)
    with pytest.raises(InputError, match="max_length must be a positive whole number, got '3'"):
        StaticEmbedder.from_pretrained(directory, max_length="3")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="outside"):
        embedder.model.table.mean(
            np.array([10**6], np.int32), np.array([0, 1], np.int32), num_threads=1
        )


def test_a_table_that_is_written_to_is_noticed(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "m")
    embedder = StaticEmbedder.from_pretrained(tmp_path / "m")
    with (tmp_path / "m" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\0\0\0\0\0")
    with pytest.raises(CheckpointFileError, match="written to"):
        embedder.encode(["the"])


def test_a_table_in_memory_needs_no_file() -> None:
    rows = table(5)
    found = StaticTable(rows_VD=rows, left_out=2).mean(
        np.array([0, 2, 4, 2], np.int32), np.array([0, 3, 4], np.int32), num_threads=1
    )
    np.testing.assert_allclose(found[0], (rows[0] + rows[4]) / 2, atol=1e-6)
    np.testing.assert_array_equal(found[1], 0)
