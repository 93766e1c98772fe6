"""Mean cosines, features' parts, and the embedder that standardises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.analysis.isotropy import feature_cosines, measure_isotropy, standardise_embedder
from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.analysis.subject import Subject
    from tests.analysis.conftest import Run

SENTENCES = [["the", "good", "film"], ["a", "bad", "plot"], ["not", "very", "good"]]


def test_the_mean_cosine_is_that_of_a_double_loop() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 5)) + 1.0
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = [unit[i] * unit[j] for i in range(9) for j in range(9) if i != j]
    found = feature_cosines(np.vstack([vectors, np.zeros(5)]))
    np.testing.assert_allclose(found.features, np.mean(pairs, axis=0), rtol=1e-12)
    assert found.mean == pytest.approx(np.mean(pairs, axis=0).sum(), rel=1e-12)
    with pytest.raises(InputError, match="at least two vectors"):
        feature_cosines(vectors[:1])


def test_a_rogue_feature_is_named_and_standardised_away(subject: Subject) -> None:
    vectors = np.random.default_rng(1).normal(size=(400, 6))
    vectors[:, 4] += 20.0
    found = feature_cosines(vectors)
    assert found.features.argmax() == 4
    assert found.features[4] / found.mean > 0.99
    layers = measure_isotropy(subject, SENTENCES)
    assert [layer.layer for layer in layers] == [0, 1, 2]


def test_a_saved_embedder_has_the_same_z_scores(model: Path, tmp_path: Path) -> None:
    embedder = ee.Embedder.from_pretrained(model, device="cpu")
    texts = ["the first text", "another one", "words and words", "a b c", "unlike"]
    standardised = standardise_embedder(embedder, texts)
    plain = standardised.encode(texts, normalize_embeddings=False)
    alive = plain.std(0) > 0
    # Rounding of float32, in a sum of the features' mean and of the product.
    bound = 64 * np.finfo(np.float32).eps * np.abs(plain).max()
    np.testing.assert_allclose(plain[:, alive].mean(0), 0.0, atol=bound)
    np.testing.assert_allclose(plain[:, alive].std(0), 1.0, atol=bound)
    standardised.save_pretrained(tmp_path / "z")
    loaded = ee.Embedder.from_pretrained(tmp_path / "z", device="cpu")
    np.testing.assert_array_equal(loaded.encode(texts), standardised.encode(texts))


@pytest.mark.filterwarnings("ignore")
def test_the_verb_prints_every_layer(tiny: Path, conllu: Path, run: Run, tmp_path: Path) -> None:
    arguments = (
        "isotropy",
        "--model",
        tiny,
        conllu,
        "--device",
        "cpu",
        "--html",
        tmp_path / "page.html",
    )
    result = run(*arguments, "--json", "--output", tmp_path / "z")
    assert result.code == 0, result.errors
    assert [layer["layer"] for layer in json.loads(result.output)["layers"]] == [0, 1, 2]
    assert run(*arguments, "--overwrite", "--output", tmp_path / "z").code == 1
    assert (tmp_path / "page.html").read_text().count("<svg") == 1
    assert ee.Embedder.from_pretrained(tmp_path / "z").encode(["film"]).shape == (1, 32)
