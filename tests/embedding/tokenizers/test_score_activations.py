"""Activations of torch.nn that a cross-encoder's directory states are applied, others refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.embedding import Ranker
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.models import SequenceClassification
from tests.embedding.library_models import assert_agree, library_models
from tests.embedding.tiny_model import write_head_directory, write_json

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = [("query", "the text"), ("a row", "words"), ("7", "long")]
NAMES = ["ELU", "GELU", "Hardtanh", "LeakyReLU", "Mish", "ReLU", "ReLU6", "SiLU", "Sigmoid"]
NAMES += ["Softmax", "Softplus", "Softsign", "Tanh"]


def state(path: Path, name: str) -> None:
    """State an activation as sentence-transformers does."""
    config = json.loads((path / "config.json").read_text("utf-8"))
    write_json(path / "config.json", config | {"sentence_transformers": {"activation_fn": name}})
    (path / "SHA256SUMS").unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Implicit dimension choice for softmax:UserWarning")
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        pytest.param(name, labels, marks=[pytest.mark.exhaustive] * (place % 2 != by))
        for place, name in enumerate([*(f"modules.activation.{name}" for name in NAMES), "Tanh"])
        for by, labels in enumerate((1, 3))
    ],
)
def test_scores_are_those_of_the_library(name: str, labels: int, tmp_path: Path) -> None:
    path = write_head_directory(tmp_path / "model", SequenceClassification, num_labels=labels)
    state(path, f"torch.nn.{name}")
    eager, truth = (
        model.predict(PAIRS, convert_to_tensor=True)
        for model in library_models("CrossEncoder", path)
    )
    engines: tuple[Any, ...] = ("compiled", "torch")
    for engine in engines:
        ranker = Ranker.from_pretrained(path, device="cpu", engine=engine)
        assert_agree(ranker.predict(PAIRS), eager, truth)
    ranker.save_pretrained(tmp_path / "saved")
    again = Ranker.from_pretrained(tmp_path / "saved", device="cpu", engine="torch")
    assert again.activation == ranker.activation


@pytest.mark.parametrize("name", ["mine.Tanh", "torch.nn.PReLU", "torch.nn.Tanh.evil"])
def test_code_of_others_is_not_run(name: str, tmp_path: Path) -> None:
    path = write_head_directory(tmp_path / "model", SequenceClassification, num_labels=1)
    state(path, name)
    with pytest.raises(UnsupportedFeatureError, match="is not run; pass activation="):
        Ranker.from_pretrained(path, device="cpu")
    assert Ranker.from_pretrained(path, device="cpu", activation="tanh").activation == "tanh"


def test_a_softmax_of_labels_is_recorded_as_another_option_than_their_logits(
    tmp_path: Path,
) -> None:
    path = write_head_directory(tmp_path / "model", SequenceClassification, num_labels=3)
    labels: Any = Ranker.from_pretrained(path, device="cpu").kinds()["labels"]
    options = [labels.resolve(activation=one) for one in (None, "identity")]
    assert [one.describe()["activation"] for one in options] == ["softmax", "identity"]
