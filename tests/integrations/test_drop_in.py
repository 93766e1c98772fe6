"""What a user would see after accelerating: the same quality, files, losses; only the time less."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from benchmarks import drop_in
from benchmarks.bench_drop_in import CurveGate, FiguresGate, figures
from encoder_engine.integrations import sentence_transformers as integration
from encoder_engine.integrations.transformers import accelerate
from tests.models.cases import CASES, Case

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning"
)
TEXTS = ["a cat sat on the mat", "", "the weather is lovely today " * 20]
NUM_DRAWS = 300
# The benchmark judges by all texts.
EVERY = 8
ALONE = """
import sys
sys.modules["encoder_engine"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
directory, texts, target = sys.argv[1], sys.argv[3:], sys.argv[2]
np.save(target, SentenceTransformer(directory, device="cpu").encode(texts))
"""


def load(minilm: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(minilm), device="cpu")


@pytest.mark.slow
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


def test_what_is_saved_loads_where_this_engine_is_not(minilm: Path, tmp_path: Path) -> None:
    model = load(minilm)
    plain = model.encode(TEXTS)
    integration.accelerate(model, pack=True)
    assert not np.array_equal(model.encode(TEXTS), plain)
    model.save(str(tmp_path / "saved"))
    arguments = [str(tmp_path / "saved"), str(tmp_path / "vectors.npy"), *TEXTS]
    command = [sys.executable, "-W", "ignore", "-c", ALONE, *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), plain)


def classifier(**changes: Any) -> Any:
    bert = CASES[0]
    sizes = bert.sizes | {"vocab_size": 31_000, "num_labels": 2}
    head = "BertForSequenceClassification"
    return Case(bert.model_type, bert.config_class, head, sizes).build(**changes)


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
    verdict = CurveGate(plain=plain, truth=truth)(curve(accelerate(classifier(**rates))))
    assert verdict.passed, verdict.reason


@torch.no_grad()
def test_dropout_makes_noise_of_the_same_size() -> None:
    ids = torch.randint(5, 30_000, (4, 12), generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([0, 1, 1, 0])

    def losses(model: Any) -> torch.Tensor:
        drawn = [model(input_ids=ids, labels=labels).loss for _ in range(NUM_DRAWS)]
        return torch.stack(drawn).double()

    model = classifier().train()
    theirs, ours = losses(model), losses(accelerate(model))
    # Of the difference of two means, and of the ratio of two deviations of a normal variable.
    error = ((theirs.var() + ours.var()) / NUM_DRAWS).sqrt()
    assert abs(float(theirs.mean() - ours.mean())) < 5 * float(error)
    assert abs(float((ours.std() / theirs.std()).log())) < 5 / NUM_DRAWS**0.5
