"""Other libraries compute with an embedder's vectors and a ranker's scores.

Given an embedder itself, KeyBERT and BERTopic loaded a default model of their own.
"""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine
from encoder_engine import Embedder
from encoder_engine.embedding import Ranker
from encoder_engine.models import SequenceClassification
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory
from tests.libraries.others import SECONDS, environment, own_variables, unavailable
from tests.libraries.topics_process import TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON = unavailable()
if REASON is not None:
    pytest.skip(REASON, allow_module_level=True)
pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("topics_process.py")


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    folder = write_sentence_directory(tmp_path_factory.mktemp("topics") / "model")
    return Embedder.from_pretrained(folder, device="cpu")


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Ranker:
    folder = tmp_path_factory.mktemp("topics") / "ranker"
    write_head_directory(folder, SequenceClassification, num_labels=1)
    return Ranker.from_pretrained(folder, device="cpu")


@pytest.fixture(scope="module")
def found(
    embedder: Embedder, ranker: Ranker, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    results = tmp_path_factory.mktemp("results") / "found"
    root = Path(encoder_engine.__file__).parents[1]
    ran = subprocess.run(
        [environment() / "bin" / "python", SCRIPT, root, embedder.name, ranker.name, results],
        capture_output=True,
        text=True,
        env=own_variables() | {"HF_HUB_OFFLINE": "1"},
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    read: Mapping[str, Any] = pickle.loads(results.read_bytes())
    np.testing.assert_array_equal(read["vectors"], embedder.encode(TEXTS))
    return read


def test_keybert_computes_with_the_embedders_vectors(found: Mapping[str, Any]) -> None:
    own = found["keybert"]
    np.testing.assert_array_equal(own["documents"], found["vectors"])
    assert own["keywords"] == own["given"]
    assert all(own["keywords"])


def test_bertopic_computes_with_the_embedders_vectors(
    found: Mapping[str, Any], embedder: Embedder
) -> None:
    own = found["bertopic"]
    np.testing.assert_array_equal(own["documents"], found["vectors"])
    np.testing.assert_array_equal(own["words"], embedder.encode(["text", "row"]))
    np.testing.assert_array_equal(*own["topics"])
    assert len(set(own["topics"][0])) == 3
    np.testing.assert_array_equal(*own["topic_embeddings"])


@pytest.mark.parametrize("library", ["keybert", "bertopic"])
def test_an_embedder_itself_is_refused_by_the_library(
    library: str, found: Mapping[str, Any]
) -> None:
    message = "ValueError: Please select a correct SentenceTransformers model"
    assert found[library]["direct"].startswith(message)
    assert all(one.startswith(message) for one in found["static"])


@pytest.mark.parametrize("library", ["langchain", "llama_index", "haystack"])
def test_a_library_searches_and_orders(
    library: str, found: Mapping[str, Any], embedder: Embedder, ranker: Ranker
) -> None:
    own = found[library]
    scores = embedder.similarity(embedder.encode_query(["the row"]), embedder.encode(TEXTS))[0]
    best = [TEXTS[row] for row in np.argsort(-scores, kind="stable")[:3]]
    assert own["hits"] == best
    ordered = ranker.rank("the row", best, 2)
    assert [text for text, _ in own["ordered"]] == [best[one["corpus_id"]] for one in ordered]
    assert [score for _, score in own["ordered"]] == [one["score"] for one in ordered]
    assert own["refused"].startswith("TypeError: ")
    if "documents" in own:
        np.testing.assert_array_equal(np.float32(own["documents"]), found["vectors"])
    assert own.get("cut", 2) == 2


def test_txtai_searches_with_the_embedder(found: Mapping[str, Any]) -> None:
    assert found["txtai"] == found["langchain"]["hits"]
