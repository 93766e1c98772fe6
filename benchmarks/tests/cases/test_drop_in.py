"""Tests of the drop-in cases: the same retrieval figures and the same training losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from benchmarks.cases import drop_in
from benchmarks.cases.drop_in import FiguresGate, curve_gate, figures
from encoder_engine.integrations import sentence_transformers as integration
from encoder_engine.integrations.transformers import accelerate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning"
)
TEXTS = ["a cat sat on the mat", "", "the weather is lovely today " * 20]
# The benchmark judges by all texts.
EVERY = 8


def load(minilm: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(minilm), device="cpu")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_similarity_and_retrieval_are_as_before(minilm: Path) -> None:
    pytest.importorskip("scipy")
    reason = drop_in.missing_data()
    if reason is not None:
        pytest.skip(reason)
    model = load(minilm)
    gate = FiguresGate(expected=figures(model, EVERY))
    assert gate.expected["stsb_spearman"] > 80
    verdict = gate(figures(integration.accelerate(model, pack=True), EVERY))
    assert verdict.passed, verdict.reason


def classifier(**changes: Any) -> Any:
    """Make a small BERT classifier of transformers, the same weights every time."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 31_000,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 194,
        "max_position_embeddings": 96,
        "num_labels": 2,
    }
    torch.manual_seed(0)
    config = transformers.BertConfig(**(sizes | changes))
    return transformers.BertForSequenceClassification(config).eval()


def test_the_trainer_of_transformers_gives_the_same_losses(minilm: Path, tmp_path: Path) -> None:
    pytest.importorskip(
        "accelerate", reason="transformers' Trainer asks for the library accelerate"
    )
    if drop_in.missing_data() is not None:
        pytest.skip(str(drop_in.missing_data()))
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

    def curve(model: Any) -> list[float]:
        return drop_in.loss_curve(model, minilm, tmp_path, count=64, steps=6)

    plain, truth = curve(classifier(**rates)), curve(classifier(**rates).double())
    assert len(set(plain)) == 6
    verdict = curve_gate(plain=plain, truth=truth)(curve(accelerate(classifier(**rates))))
    assert verdict.passed, verdict.reason
