"""The wrapper for MTEB, driven as its evaluators drive a model."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import Embedder, StaticEmbedder
from encoder_engine.errors import MissingDependencyError
from encoder_engine.integrations.mteb import MtebEncoder
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

TASK = SimpleNamespace(name="NFCorpus", type="Retrieval")
BATCHES = [{"text": ["the text", "a row"]}, {"text": ["query 7"]}]
TEXTS = ["the text", "a row", "query 7"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    prompts = {"query": "query: ", "NFCorpus-query": "row: ", "Retrieval": "passage: "}
    folder = write_sentence_directory(
        tmp_path_factory.mktemp("mteb"), settings={"prompts": prompts}
    )
    return Embedder.from_pretrained(folder, device="cpu")


@pytest.mark.parametrize(
    ("task", "kind", "prompt"),
    [
        (None, None, ""),
        (None, "query", "query: "),
        (TASK, SimpleNamespace(value="query"), "row: "),
        (TASK, None, "passage: "),
        (SimpleNamespace(name="STS12", type="STS"), "query", "query: "),
        (SimpleNamespace(name="STS12", type="STS"), None, ""),
    ],
)
def test_texts_get_the_prompt_of_their_task(
    embedder: Embedder, task: object, kind: object, prompt: str
) -> None:
    found = MtebEncoder(embedder).encode(
        BATCHES, task_metadata=task, prompt_type=kind, hf_split="test", hf_subset="default"
    )
    np.testing.assert_array_equal(found, embedder.encode(TEXTS, prompt=prompt))


def test_encode_kwargs_reach_the_embedder(embedder: Embedder) -> None:
    """They were dropped: scores of 16 features were recorded as those of 8."""
    model = MtebEncoder(embedder)
    options: dict[str, Any] = {"truncate_dim": 8, "normalize_embeddings": True}
    found = model.encode(BATCHES, hf_split="test", hf_subset="default", batch_size=2, **options)
    np.testing.assert_array_equal(found, embedder.encode(TEXTS, **options))
    with pytest.raises(TypeError, match="unexpected keyword argument 'truncate_dims'"):
        model.encode(BATCHES, truncate_dims=8)


def test_similarities_are_tensors(embedder: Embedder) -> None:
    model = MtebEncoder(embedder, name="someone/model")
    vectors = model.encode(TEXTS)
    matrix = model.similarity(vectors, vectors)
    np.testing.assert_allclose(matrix.numpy(), embedder.similarity(vectors, vectors))
    pairs = model.similarity_pairwise(vectors, vectors)
    np.testing.assert_allclose(pairs.numpy(), np.diag(matrix.numpy()), atol=1e-6)


def test_static_tables_take_part(tmp_path: Path) -> None:
    table = StaticEmbedder.from_pretrained(write_model2vec(tmp_path))
    model = MtebEncoder(table)
    assert model.name == str(tmp_path)
    np.testing.assert_array_equal(model.encode(BATCHES), table.encode(TEXTS))


def test_mteb_knows_the_wrapper(embedder: Embedder) -> None:
    models = pytest.importorskip("mteb.models", reason="mteb is not installed")
    model = MtebEncoder(embedder, name="someone/model")
    assert isinstance(model, models.EncoderProtocol)
    assert model.mteb_model_meta.name == "someone/model"


def test_a_missing_mteb_is_named(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb.models", None)
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(MissingDependencyError, match="needs mteb"):
        _ = MtebEncoder(embedder).mteb_model_meta
