"""transformers' Trainer and PyTorch's wrappers over models that skip logits in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from encoder_engine.errors import MissingLogitsError
from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget
from tests.integrations.heads.models import (
    IGNORED,
    bert,
    build,
    heads,
    labelled_batch,
    loss_and_gradients,
)
from tests.models.cases import Case, case_id
from tests.models.exact import exact, in_float64

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

library: Any = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
STEPS, EXAMPLES = 50, 4


def draw_rows(number: int, *, longest: int = 16) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(number):
        length = int(torch.randint(4, longest, (1,), generator=generator))
        ids = torch.randint(5, 120, (length,), generator=generator)
        labels = torch.where(torch.rand(length, generator=generator) < 0.3, ids, IGNORED)
        labels[1] = ids[1]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def collate(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    def padded(name: str, value: int) -> torch.Tensor:
        tensors = [row[name] for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)

    return {
        "input_ids": padded("input_ids", 1),
        "attention_mask": (padded("labels", -1) != -1).long(),
        "labels": padded("labels", IGNORED),
    }


class Recorded(library.Trainer):  # type: ignore[misc, name-defined, unused-ignore]
    """A trainer that keeps every loss."""

    def compute_loss(self, *args: Any, **more: Any) -> Any:
        """Compute the loss, and keep it."""
        found = super().compute_loss(*args, **more)
        loss = found[0] if isinstance(found, tuple) else found
        self.losses = [*getattr(self, "losses", []), loss.detach()]
        return found


def trainer(model: Any, folder: Path, *, steps: int = 4, kind: Any = Recorded, **more: Any) -> Any:
    """Make a trainer; ``more``: its keywords, and arguments of training."""
    keywords = {key: more.pop(key) for key in ("compute_metrics", "eval_dataset") if key in more}
    settings = {"learning_rate": 1e-3, "max_steps": steps, "per_device_train_batch_size": EXAMPLES}
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = library.TrainingArguments(
        str(folder), dataloader_pin_memory=False, logging_strategy="no", **settings, **quiet, **more
    )
    return kind(model, arguments, train_dataset=draw_rows(40), data_collator=collate, **keywords)


def losses(model: Any, folder: Path, **more: Any) -> torch.Tensor:
    trained = trainer(model, folder, **more)
    trained.train()
    return torch.stack(trained.losses)


# The others, in the long run alone, share their blocks.
SHORT_RUN = ("modernbert",)
FIFTY = [
    pytest.param(case, marks=() if case.model_type in SHORT_RUN else pytest.mark.exhaustive)
    for case in heads("MaskedLM")
]


@pytest.mark.parametrize("case", FIFTY, ids=case_id)
def test_fifty_losses_are_those_without_acceleration(case: Case, tmp_path: Path) -> None:
    eager = losses(build(case), tmp_path, steps=STEPS)
    with in_float64():
        truth = losses(exact(build(case)), tmp_path, steps=STEPS)
    found = losses(accelerate(build(case)), tmp_path, steps=STEPS)
    assert len(found) == STEPS
    # The rounding of each step moves the steps after it, at random.
    assert_within_budget(found, eager, truth, terms=STEPS)


@pytest.mark.parametrize(
    "settings",
    [
        {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2},
        {"gradient_checkpointing": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_the_trainer_keep_the_losses(settings: dict[str, Any], tmp_path: Path) -> None:
    eager = losses(bert(), tmp_path, **settings)
    with in_float64():
        truth = losses(exact(bert()), tmp_path, **settings)
    model = accelerate(bert())
    assert_within_budget(losses(model, tmp_path, **settings), eager, truth, terms=len(eager))
    assert model.bert.forward.recomputes is ("gradient_checkpointing" in settings)


def test_evaluation_within_training_has_the_logits_for_its_metrics(tmp_path: Path) -> None:
    shapes = []

    def accuracy(found: Any) -> dict[str, float]:
        shapes.append(found.predictions.shape)
        chosen = found.label_ids != IGNORED
        return {"accuracy": (found.predictions.argmax(-1) == found.label_ids)[chosen].mean()}

    more: dict[str, Any] = {"compute_metrics": accuracy, "eval_dataset": draw_rows(8)}
    scores = []
    for model in (bert(), accelerate(bert())):
        trained = trainer(model, tmp_path, eval_strategy="steps", eval_steps=2, **more)
        trained.train()
        scores.append([line["eval_accuracy"] for line in trained.state.log_history[:-1]])
    longest = max(len(row["input_ids"]) for row in draw_rows(8))
    assert shapes == [(8, longest, 120)] * 4
    assert scores[0] == scores[1]


def test_a_trainer_that_reads_logits_in_training_gets_an_error_with_advice(tmp_path: Path) -> None:
    class Entropy(Recorded):
        """A trainer whose loss is of all logits."""

        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            """Compute a loss of the logits of all tokens."""
            return model(**inputs).logits.softmax(-1).square().sum()

    model = accelerate(bert())
    with pytest.raises(MissingLogitsError, match="full_logits=True"):
        trainer(model, tmp_path, kind=Entropy).train()
    trainer(accelerate(model, full_logits=True), tmp_path, kind=Entropy).train()


def test_mixed_precision_of_the_trainer_trains_and_is_undone(tmp_path: Path) -> None:
    model = bert()
    trained = trainer(accelerate(model), tmp_path, bf16=True)
    trained.train()
    # Its library has wrapped the model's forward by now.
    batch = labelled_batch(model)
    unwrapped = trained.accelerator.unwrap_model(trained.model, keep_fp32_wrapper=False)
    skipped = unwrapped.train()(**batch)
    with pytest.raises(MissingLogitsError):
        skipped.logits.mean()
    torch.testing.assert_close(restore(unwrapped)(**batch).loss, skipped.loss)
    assert torch.stack(trained.losses).isfinite().all()


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(
    "options",
    [{}, {"find_unused_parameters": True}, {"static_graph": True}],
    ids=["plain", "unused", "static"],
)
def test_data_parallel_gradients_are_those_of_the_model(options: dict[str, Any]) -> None:
    model = accelerate(bert())
    batch = labelled_batch(model)
    expected = loss_and_gradients(model, batch)
    replica = DistributedDataParallel(model, **options)
    for _ in range(2):
        model.zero_grad()
        output = replica(**batch)
        torch.autograd.backward(output.loss)
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter.grad, expected[name])
    with pytest.raises(MissingLogitsError):
        output.logits.mean()


@pytest.mark.exhaustive
def test_compiled_models_skip_logits_in_training_alone() -> None:
    model = accelerate(bert())
    batch = labelled_batch(model)
    expected = loss_and_gradients(model, batch)
    compiled: Any = torch.compile(model)
    found = compiled(**batch)
    torch.autograd.backward(found.loss)
    torch.testing.assert_close(found.loss, expected["loss"])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
    with pytest.raises(MissingLogitsError):
        found.logits.mean()
    model.eval()
    plain = {name: values for name, values in batch.items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).loss, expected["loss"])
        torch.testing.assert_close(compiled(**plain).logits, model(**plain).logits)
