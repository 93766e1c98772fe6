"""sentence-transformers' losses and trainers over accelerated models, which train as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.integrations.sentence_transformers import accelerate
from encoder_engine.ops.testing import assert_within_budget
from tests.models.exact import in_float64

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::Warning:dill.*"),
]
STEPS, TEXTS = 2, 4
QUESTIONS = [f"what is {name}?" for name in ("rain", "a mat", "a mild autumn day", "sun")]
ANSWERS = ["water", "a flat thing " * 9, "weather in october", "a star"]


@pytest.fixture(params=["SentenceTransformer", "CrossEncoder"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def make(kind: str, folder: Path) -> Any:
    """Make MiniLM without dropout, alone or below a new head of pairs."""
    library = pytest.importorskip("sentence_transformers")
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(1)
    more = {"num_labels": 1} if kind == "CrossEncoder" else {}
    return getattr(library, kind)(str(folder), device="cpu", config_kwargs=rates, **more).train()


def loss_of(kind: str, model: Any) -> torch.nn.Module:
    """Return the usual loss of a model."""
    import sentence_transformers.cross_encoder.losses as of_pairs
    import sentence_transformers.sentence_transformer.losses as of_texts

    found: torch.nn.Module = (
        of_pairs.BinaryCrossEntropyLoss(model)
        if kind == "CrossEncoder"
        else of_texts.MultipleNegativesRankingLoss(model)
    )
    return found


def batches(kind: str) -> Iterator[tuple[Any, torch.Tensor]]:
    for step in range(STEPS):
        answers = ANSWERS[step % TEXTS :] + ANSWERS[: step % TEXTS]
        yield [QUESTIONS, answers], torch.tensor([1.0, 0.0, 0.0, 1.0])


def losses(kind: str, model: Any) -> torch.Tensor:
    """Train in a loop."""
    loss_function = loss_of(kind, model)
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found = []
    for columns, labels in batches(kind):
        inputs = columns if kind == "CrossEncoder" else [model.preprocess(c) for c in columns]
        loss = loss_function(inputs, labels.to(dtype))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return torch.stack(found)


def test_losses_of_a_loop_are_within_budget(kind: str, minilm: Path) -> None:
    eager = losses(kind, make(kind, minilm))
    with in_float64():
        truth = losses(kind, make(kind, minilm).double())
    found = losses(kind, accelerate(make(kind, minilm)))
    assert not torch.equal(found, eager)
    # The rounding of each step moves the steps after it.
    assert_within_budget(found, eager, truth, terms=STEPS)


def trained_losses(kind: str, model: Any, folder: Path) -> torch.Tensor:
    """Train by the library's trainer."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    import sentence_transformers.cross_encoder as of_pairs
    import sentence_transformers.sentence_transformer as of_texts

    room = of_pairs if kind == "CrossEncoder" else of_texts
    columns: dict[str, Any] = {"question": QUESTIONS * STEPS, "answer": ANSWERS * STEPS}
    if kind == "CrossEncoder":
        columns["label"] = [1.0, 0.0, 0.0, 1.0] * STEPS
    arguments = getattr(room, f"{kind}TrainingArguments")(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=TEXTS,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = getattr(room, f"{kind}Trainer")(
        model,
        arguments,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=loss_of(kind, model),
    )
    trainer.train()
    return torch.tensor([line["loss"] for line in trainer.state.log_history[:-1]])


def test_losses_of_their_trainer_are_within_budget(kind: str, minilm: Path, tmp_path: Path) -> None:
    eager = trained_losses(kind, make(kind, minilm), tmp_path)
    with in_float64():
        truth = trained_losses(kind, make(kind, minilm).double(), tmp_path)
    found = trained_losses(kind, accelerate(make(kind, minilm)), tmp_path)
    assert len(found) == STEPS
    assert_within_budget(found, eager, truth, terms=STEPS)
