"""Pickles by path: a few hundred bytes that load the same model, or refuse another one."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_engine import Embedder, StaticEmbedder
from encoder_engine.embedding import Ranker, SparseEmbedder
from encoder_engine.errors import CheckpointFileError, ChecksumError, UnsupportedFeatureError
from encoder_engine.models import MaskedLM, SequenceClassification
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_head_directory, write_json, write_sentence_directory

TEXTS = ["the text", "a row of words"]
PAIR = ("the text", "a row")


def load(kind: str, folder: Path, engine: Any) -> tuple[Any, Any]:
    """Load a model, and return it with a call that shows its numbers."""
    if kind == "static":
        static = StaticEmbedder.from_pretrained(write_model2vec(folder))
        return static, lambda model: model.encode(TEXTS)
    if kind == "ranker":
        write_head_directory(folder, SequenceClassification, num_labels=1)
        ranker = Ranker.from_pretrained(folder, device="cpu", activation="identity", engine=engine)
        return ranker, lambda model: model.score([PAIR])
    if kind == "sparse":
        write_head_directory(folder, MaskedLM)
        sparse = SparseEmbedder.from_pretrained(folder, device="cpu", engine=engine)
        return sparse, lambda model: model.encode(TEXTS).dense()
    write_sentence_directory(folder, settings={"prompts": {"query": "query: "}})
    options: Any = {"pooling": "cls", "dtype": "float32", "layers": [-1, -2], "engine": engine}
    return Embedder.from_pretrained(folder, device="cpu", **options), lambda m: m.encode(TEXTS)


KINDS = ["dense", "ranker", "sparse", "static"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_a_pickle_by_path_loads_the_same_model(kind: str, engine: Any, tmp_path: Path) -> None:
    model, numbers = load(kind, tmp_path / "model", engine)
    model.pickle_by = "path"
    held = pickle.dumps(model)
    assert len(held) < 2000
    for loaded in (pickle.loads(held), copy.deepcopy(model)):
        assert type(loaded) is type(model)
        assert loaded.engine.name == model.engine.name
        assert loaded.pickle_by == "path"
        np.testing.assert_array_equal(numbers(loaded), numbers(model))


def test_a_limit_that_was_set_is_kept(tmp_path: Path) -> None:
    model, _ = load("dense", tmp_path / "model", "compiled")
    model.max_seq_length, model.pickle_by = 4, "path"
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.max_seq_length == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_by_path_is_read_in_another_directory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, numbers = load(kind, Path("model"), "auto")
    model.pickle_by = "path"
    held, expected = pickle.dumps(model), numbers(model)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(numbers(pickle.loads(held)), expected)


def test_a_pickle_says_that_the_model_may_have_been_changed_in_memory(tmp_path: Path) -> None:
    model, numbers = load("sparse", tmp_path / "model", "auto")
    model.pooling, model.pickle_by = "sum", "path"
    np.testing.assert_array_equal(numbers(pickle.loads(pickle.dumps(model))), numbers(model))
    model.activation = "log1p_relu"
    with pytest.raises(ChecksumError, match="or the model had been changed in memory"):
        pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", ["weights", "vocabulary"])
def test_a_folder_that_has_changed_is_refused(kind: str, changed: str, tmp_path: Path) -> None:
    model, _ = load(kind, tmp_path / "model", "auto")
    model.pickle_by = "path"
    held = pickle.dumps(model)
    folder = tmp_path / "model"
    if changed == "weights":
        weights = bytearray((folder / "model.safetensors").read_bytes())
        # The lowest byte of the last number.
        weights[-4] ^= 1
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "SHA256SUMS").unlink(missing_ok=True)
    elif (folder / "vocab.txt").is_file():
        words = (folder / "vocab.txt").read_text("utf-8")
        (folder / "vocab.txt").write_text(words.replace("\nquery\n", "\nquest\n"), "utf-8")
    else:
        words = (folder / "tokenizer.json").read_text("utf-8")
        (folder / "tokenizer.json").write_text(words.replace('"query"', '"quest"'), "utf-8")
    with pytest.raises(ChecksumError, match="has changed since its model was pickled by path"):
        pickle.loads(held)


def test_a_prompt_that_has_changed_is_refused(tmp_path: Path) -> None:
    model, _ = load("dense", tmp_path / "model", "auto")
    model.pickle_by = "path"
    held = pickle.dumps(model)
    file = tmp_path / "model" / "config_sentence_transformers.json"
    write_json(file, json.loads(file.read_text()) | {"prompts": {"query": "ask: "}})
    with pytest.raises(ChecksumError, match="put the former files back"):
        pickle.loads(held)
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(CheckpointFileError):
        pickle.loads(held)


def test_a_model_made_in_memory_is_pickled_by_its_weights_alone(tmp_path: Path) -> None:
    loaded, numbers = load("dense", tmp_path / "model", "auto")
    model = Embedder(loaded.encoder, loaded.tokenizer, replace(loaded.recipe, layers=None))
    np.testing.assert_array_equal(numbers(pickle.loads(pickle.dumps(model))), numbers(model))
    model.pickle_by = "path"
    with pytest.raises(UnsupportedFeatureError, match="no path to name: save and load it"):
        pickle.dumps(model)
    model.save_pretrained(tmp_path / "saved")
    saved = Embedder.from_pretrained(tmp_path / "saved", device="cpu")
    saved.pickle_by = "path"
    assert type(pickle.loads(pickle.dumps(saved))) is Embedder
