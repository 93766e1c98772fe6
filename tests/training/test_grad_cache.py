"""GradCache computes the plain step's gradient: in any number of micro-batches, with dropout."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from encoder_engine import ops
from encoder_engine.data.loader import Position
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import Encoder
from encoder_engine.models.training_model import CoupledModel, Inputs, LossSum
from encoder_engine.objectives.vectors.in_batch import in_batch_negatives
from encoder_engine.packing import pack
from encoder_engine.training.course import StepBatches
from encoder_engine.training.step.grad_cache import couple
from encoder_engine.training.world import World
from tests import ROOT
from tests.training.runs import CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PAIRS = 12
# A gradient sums over the tokens of all texts, fewer than 20 each.
TERMS = 2 * PAIRS * 20


class MeanEmbedder(CoupledModel):
    """Mean pooling, and in-batch negatives between even and odd texts."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        # No loss would train the pooler, and DDP would wait for its gradient.
        encoder.pooler = None
        self.encoder, self.weights = encoder, {"negatives": 1.0}

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        return (self.encoder,)

    def counts(self, inputs: Inputs) -> dict[str, int]:
        return {"negatives": len(inputs.batch) // 2}

    def vectors(self, inputs: Inputs) -> Tensor:
        output = self.encoder(inputs.batch, output_pooled=False)
        return ops.pooling(output.last_hidden_state, output.sequences)

    def losses(
        self, vectors: Tensor, targets: Mapping[str, Tensor], share: tuple[int, int] = (0, 1)
    ) -> dict[str, LossSum]:
        del targets
        total = in_batch_negatives(vectors[::2], vectors[1::2], share=share)
        return {"negatives": LossSum(total, len(vectors) // 2)}

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        pytest.fail(f"no test saves the model, asked for {directory}")


def make_model(dtype: torch.dtype, dropout: float) -> MeanEmbedder:
    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config: dict[str, Any] = CONFIG | rates | {"vocab_size": 40}
    return MeanEmbedder(Encoder(spec_from_config(config), config=config).to(dtype)).train()


def draw_steps(num_batches: int) -> StepBatches:
    generator = torch.Generator().manual_seed(1)
    texts = [
        torch.randint(0, 40, (int(length),), generator=generator).tolist()
        for length in torch.randint(1, 20, (2 * PAIRS,), generator=generator)
    ]
    size = 2 * PAIRS // num_batches
    batches = [pack(texts[i : i + size]) for i in range(0, len(texts), size)]
    return StepBatches([Inputs(batch, {}) for batch in batches], len(batches), Position())


def seed(place: int) -> None:
    torch.manual_seed(100 + place)


def gradients(model: MeanEmbedder, batches: StepBatches) -> tuple[float, dict[str, Tensor]]:
    """Take the step by GradCache, as the loop does."""
    scales = {"negatives": 1.0 / PAIRS}
    inputs, sums = couple(model, batches, World(), scales, prepare=seed, casting=nullcontext)
    for place, one in enumerate(inputs):
        seed(place)
        model(one)["coupled"].total.backward()
    return float(sums[0]), collect(model)


def plain_gradients(model: MeanEmbedder, batches: StepBatches) -> tuple[float, dict[str, Tensor]]:
    """Take the same step with the graphs of all micro-batches at once."""
    parts = []
    for place, inputs in enumerate(batches.inputs):
        seed(place)
        parts.append(model.embed(inputs))
    loss = model.losses(torch.cat(parts), {})["negatives"].total
    torch.autograd.backward(loss / PAIRS)
    return float(loss.detach()), collect(model)


def collect(model: MeanEmbedder) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same_step(
    found: tuple[float, dict[str, Tensor]],
    expected: tuple[float, dict[str, Tensor]],
    dtype: torch.dtype,
) -> None:
    """Assert that two orders of the same sums differ by no more than their rounding."""
    noise = TERMS * torch.finfo(dtype).eps
    assert found[0] == pytest.approx(expected[0], rel=noise)
    assert found[1].keys() == expected[1].keys()
    largest = max(float(x.abs().max()) for x in expected[1].values())
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=0, atol=noise * largest, msg=name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("num_batches", [1, 3, 12])
def test_the_gradient_is_the_plain_steps_with_dropout(dtype: torch.dtype, num_batches: int) -> None:
    model, batches = make_model(dtype, 0.1), draw_steps(num_batches)
    loss, expected = plain_gradients(model, batches)
    found_loss, found = gradients(model, batches)
    assert_same_step((found_loss, found), (loss, expected), dtype)


def test_micro_batches_do_not_change_the_gradient() -> None:
    model = make_model(torch.float64, 0.0)
    loss, expected = gradients(model, draw_steps(1))
    for num_batches in (2, 6):
        step = gradients(model, draw_steps(num_batches))
        assert_same_step(step, (loss, expected), torch.float64)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_processes_with_unequal_counts_have_the_same_gradient(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "tests.training.coupled_ranks", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1_800,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = torch.load(tmp_path / "gradients.pt")
    loss, expected = gradients(make_model(torch.float64, 0.0), draw_steps(3))
    assert_same_step((loss, found), (loss, expected), torch.float64)
