"""Outputs have the prompt of documents that encode_document has."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.cli import main
from encoder_engine.embedding import Embedder, SparseEmbedder, StaticEmbedder, load_vectors
from encoder_engine.models import MaskedLM
from encoder_engine.vectors.sparse_vectors import SparseVectors
from encoder_engine.vectors.stored_vectors import StoredVectors
from tests.embedding.static.static_models import write_library_directory
from tests.embedding.tiny_model import (
    write_head_directory,
    write_json,
    write_sentence_directory,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::encoder_engine.errors.EncoderEngineWarning")

TEXTS = ["a b c", "d e", "f g h", "the row"]
QUERY, DOCUMENT = "query ", "passage "
STATED = {"prompts": {"query": QUERY, "document": DOCUMENT}, "default_prompt_name": "query"}


def open_model(kind: str, folder: Path) -> Any:
    """Load a model whose default prompt is not its prompt of documents."""
    if kind == "static":
        return StaticEmbedder.from_pretrained(write_library_directory(folder, settings=STATED))
    if kind == "dense":
        return Embedder.from_pretrained(write_sentence_directory(folder, settings=STATED))
    write_head_directory(folder, MaskedLM)
    write_json(
        folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder", **STATED}
    )
    return SparseEmbedder.from_pretrained(folder, "cpu")


def dense(vectors: Any) -> np.ndarray[Any, Any]:
    """Return dense or sparse vectors, stored ones too, as an array [N, D]."""
    if isinstance(vectors, StoredVectors):
        vectors = vectors.sparse if vectors.kind == "sparse" else vectors.vectors
    if not isinstance(vectors, SparseVectors):
        return np.asarray(vectors)
    array = np.zeros((len(vectors.indptr) - 1, vectors.dimension), np.float32)
    for row, (start, stop) in enumerate(pairwise(vectors.indptr)):
        array[row, vectors.indices[start:stop]] = vectors.values[start:stop]
    return array


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "texts.txt", TEXTS)


def write_texts(path: Path, texts: list[str]) -> Path:
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


def recorded(folder: Path) -> str:
    manifest = json.loads((folder / "_manifest.json").read_text("utf-8"))
    prompt: str = manifest["plan"]["options"]["prompt"]
    return prompt


@pytest.mark.parametrize("kind", ["dense", "static", "sparse"])
def test_new_outputs_have_the_prompt_of_documents(kind: str, source: Path, tmp_path: Path) -> None:
    model, folder = open_model(kind, tmp_path / "model"), tmp_path / "store"
    expected = dense(model.encode(TEXTS, prompt=DOCUMENT))
    assert not np.array_equal(expected, dense(model.encode(TEXTS)))
    assert np.array_equal(expected, dense(model.encode_document(TEXTS)))
    model.encode_dataset(source, folder, shard_rows=2)
    assert np.array_equal(dense(load_vectors(folder)), expected)
    assert recorded(folder) == DOCUMENT
    model.encode_dataset(source, tmp_path / "one.parquet")
    assert np.array_equal(dense(load_vectors(tmp_path / "one.parquet")), expected)
    for given, prompt in (({"prompt": ""}, ""), ({"prompt_name": "query"}, QUERY)):
        model.encode_dataset(source, folder, shard_rows=2, overwrite=True, **given)
        assert recorded(folder) == prompt


def test_a_model_without_a_prompt_of_documents_has_its_default_one(
    source: Path, tmp_path: Path
) -> None:
    stated = {"prompts": {"query": QUERY, "passage": "p "}, "default_prompt_name": "query"}
    model = Embedder.from_pretrained(write_sentence_directory(tmp_path / "model", settings=stated))
    model.encode_dataset(source, tmp_path / "store", shard_rows=2)
    assert recorded(tmp_path / "store") == QUERY


def test_the_command_line_and_two_processes_take_the_prompt_of_documents(
    source: Path, tmp_path: Path
) -> None:
    directory = write_sentence_directory(tmp_path / "model", settings=STATED)
    command = ["embed", str(source), "-m", str(directory), "--shard-rows", "2", "-q"]
    for name, more in (("one", []), ("two", ["--workers", "2"])):
        assert main([*command, "-o", str(tmp_path / name), *more]) == 0
        assert recorded(tmp_path / name) == DOCUMENT
    one, two = (dense(load_vectors(tmp_path / name)) for name in ("one", "two"))
    assert np.array_equal(one, two)
