"""``TextEmbedder`` in pipelines and searches of scikit-learn."""

from __future__ import annotations

import importlib
import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pytest

from encoder_engine import Embedder, StaticEmbedder
from encoder_engine.errors import ChecksumError, MissingDependencyError
from tests.embedding.static.static_models import write_model2vec
from tests.embedding.tiny_model import write_json, write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"{word} {number}" for number in range(10) for word in ("the text", "a row of words")]
LABELS = [0, 1] * 10


@pytest.fixture
def model(tmp_path: Path) -> str:
    settings = {"prompts": {"query": "query: "}}
    return str(write_sentence_directory(tmp_path / "model", settings=settings))


def text_embedder(*arguments: Any, **options: Any) -> Any:
    base = pytest.importorskip("encoder_engine.integrations.sklearn", exc_type=ImportError)
    return base.TextEmbedder(*arguments, **options)


def test_features_are_the_vectors_of_the_embedder(model: str) -> None:
    options: dict[str, Any] = {"prompt_name": "query", "truncate_dim": 8}
    found = text_embedder(model, pooling="cls", device="cpu", **options).fit_transform(TEXTS)
    expected = Embedder.from_pretrained(model, device="cpu", pooling="cls").encode(TEXTS, **options)
    np.testing.assert_array_equal(found, expected)
    fitted = text_embedder(model).fit(TEXTS)
    for texts in (np.array(TEXTS), pyarrow.array(TEXTS)):
        np.testing.assert_array_equal(fitted.transform(texts), fitted.transform(TEXTS))


def test_a_static_model_gives_features_too(tmp_path: Path) -> None:
    folder = write_model2vec(tmp_path / "static")
    found = text_embedder(str(folder)).fit_transform(TEXTS)
    np.testing.assert_array_equal(found, StaticEmbedder.from_pretrained(folder).encode(TEXTS))


def test_it_is_a_transformer_of_scikit_learn(model: str) -> None:
    base = pytest.importorskip("sklearn.base")
    exceptions = pytest.importorskip("sklearn.exceptions")
    transformer = text_embedder(model, truncate_dim=3)
    with pytest.raises(exceptions.NotFittedError):
        transformer.transform(TEXTS)
    copy = base.clone(transformer.fit(TEXTS))
    assert not hasattr(copy, "embedder_")
    assert copy.get_params() == transformer.get_params()
    assert transformer.get_feature_names_out().tolist() == [f"textembedder{n}" for n in range(3)]
    copy.set_params(truncate_dim=None, pooling="max")
    assert copy.fit_transform(TEXTS).shape == (20, 16)
    assert copy.embedder_.recipe.pooling == ("max",)


def test_a_search_over_pooling_runs_and_is_pickled_by_path(model: str, tmp_path: Path) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    selection = pytest.importorskip("sklearn.model_selection")
    pipeline = pytest.importorskip("sklearn.pipeline")
    steps = pipeline.make_pipeline(text_embedder(model), linear.LogisticRegression())
    grid = {"textembedder__pooling": ["mean", "cls"], "textembedder__truncate_dim": [4, None]}
    search = selection.GridSearchCV(steps, grid, cv=2).fit(TEXTS, LABELS)
    assert search.best_score_ == 1.0
    assert len(search.cv_results_["params"]) == 4
    held = pickle.dumps(search.best_estimator_)
    assert len(held) < 5000
    np.testing.assert_array_equal(pickle.loads(held).predict(TEXTS), search.predict(TEXTS))
    write_json(tmp_path / "model" / "config_sentence_transformers.json", {"prompts": {"a": "b"}})
    with pytest.raises(ChecksumError, match="has changed since"):
        pickle.loads(held)


@pytest.mark.parametrize("module", ["sklearn.base", "keybert.backend", "bertopic.backend"])
def test_a_library_that_is_missing_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = module.partition(".")[0]
    name = f"encoder_engine.integrations.{library}"
    for absent in (library, module):
        monkeypatch.setitem(sys.modules, absent, None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingDependencyError, match=f"{name} needs .*pip install"):
        importlib.import_module(name)
