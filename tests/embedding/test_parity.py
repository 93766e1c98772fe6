"""The same vectors as sentence-transformers 6 on the real MiniLM weights, and the same scores."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, read_recipe
from tests import ROOT
from tests.vectors.drawn import Vectors, assert_vectors_agree, load_sentence_transformer

if TYPE_CHECKING:
    from pathlib import Path

NUM_TEXTS = 2000
LEAST_COSINE = 0.999999
# The second product of a feed-forward layer.
LONGEST_SUM = 4 * 384


@pytest.fixture(scope="module")
def embedder(minilm: Path) -> Embedder:
    """Load MiniLM on the CPU."""
    return Embedder.from_pretrained(minilm, device="cpu")


@pytest.fixture(scope="module")
def sentence_transformer(minilm: Path) -> Any:
    """Load MiniLM in sentence-transformers."""
    return load_sentence_transformer(minilm)


@pytest.fixture(scope="module")
def truth(minilm: Path) -> Any:
    """Load MiniLM in sentence-transformers, to compute in float64."""
    return load_sentence_transformer(minilm, torch.float64)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Read real texts and join some, so that lengths run from nothing to beyond the limit."""
    lines = (ROOT / "examples" / "python_stdlib.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line)["text"] for line in lines]
    assert len(entries) >= NUM_TEXTS
    mixed = ["", "a", "naïve café 東京 🙂 \t\n", *entries]
    for row in range(40):
        mixed[5 + row * 13] = " ".join(entries[row : row + 1 + row * 7 % 24])
    return mixed[:NUM_TEXTS]


def cosines(ours: Vectors, theirs: Vectors) -> Vectors:
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    result: Vectors = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return result


@pytest.mark.exhaustive
@pytest.mark.slow
def test_two_thousand_mixed_texts_agree(
    embedder: Embedder, sentence_transformer: Any, truth: Any, texts: list[str]
) -> None:
    ours = embedder.encode(texts, on_truncation="ignore")
    theirs = sentence_transformer.encode(texts)
    assert ours.shape == theirs.shape == (NUM_TEXTS, 384)
    assert cosines(ours, theirs).min() >= LEAST_COSINE
    some = slice(0, None, 10)
    assert_vectors_agree(ours[some], theirs[some], truth.encode(texts[some]), terms=LONGEST_SUM)


def test_one_batch_of_mixed_lengths_agrees(
    embedder: Embedder, sentence_transformer: Any, texts: list[str]
) -> None:
    mixed = texts[:48]
    lengths = embedder.tokenizer.encode_batch(mixed, max_length=256).lengths
    assert lengths.min() == 2
    assert lengths.max() == 256
    ours = embedder.encode(mixed, batch_tokens=10**6, on_truncation="ignore")
    theirs = sentence_transformer.encode(mixed, batch_size=len(mixed))
    assert cosines(ours, theirs).min() >= LEAST_COSINE


@pytest.mark.exhaustive
def test_options_agree(
    embedder: Embedder, sentence_transformer: Any, truth: Any, texts: list[str]
) -> None:
    some = texts[3:40]
    ours = embedder.encode(some, prompt="query: ", truncate_dim=100, on_truncation="ignore")
    theirs, true = (
        model.encode(some, prompt="query: ", truncate_dim=100, normalize_embeddings=True)
        for model in (sentence_transformer, truth)
    )
    assert_vectors_agree(ours, theirs, true, terms=LONGEST_SUM)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_a_directory_of_version_6_agrees(
    minilm: Path, tmp_path: Path, *, include_prompt: bool
) -> None:
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    model = load_sentence_transformer(minilm)
    model[1] = modules.Pooling(384, ("weightedmean", "cls"), include_prompt=include_prompt)
    model.prompts = {"query": "represent this: ", "document": ""}
    model.max_seq_length = 128
    model.save(str(tmp_path), create_model_card=False)
    recipe = read_recipe(tmp_path)
    assert recipe.pooling == ("weightedmean", "cls")
    assert recipe.prompts["query"] == "represent this: "
    embedder = Embedder.from_pretrained(tmp_path, device="cpu")
    assert embedder.max_seq_length == 128
    some = ["how do I compress a file", "", "threads " * 200]
    ours = embedder.encode(some, prompt_name="query", on_truncation="ignore")
    theirs = model.encode(some, prompt_name="query")
    assert ours.shape == (3, 768)
    assert cosines(ours, theirs).min() >= LEAST_COSINE


@pytest.mark.exhaustive
def test_sts_benchmark_scores_agree(embedder: Embedder, shared_data: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    with (shared_data / "sts" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    reference = json.loads((shared_data / "reference" / "expected_dev.json").read_text("utf-8"))
    expected = reference["stsb_en_dev"]
    assert len(rows) == expected["n"]
    first, second, gold = zip(*rows, strict=True)
    scores = cosines(embedder.encode(first), embedder.encode(second))
    found = stats.spearmanr(scores, [float(score) for score in gold]).statistic * 100
    assert round(float(found), 4) == expected["spearman"]
