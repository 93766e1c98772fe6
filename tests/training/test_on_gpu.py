"""The training loop on a GPU; the same tests run on a CPU.

Gradients are compared with float64, each tensor in units of its largest element: the error may be
twice that of plain PyTorch in the same precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from encoder_engine import ops
from encoder_engine.data.loader import Position
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.training import Trainer
from encoder_engine.training.course import StepBatches
from encoder_engine.training.step import graphs as step_graphs
from encoder_engine.training.world import World, replicate
from tests.ops.cases import DEVICES
from tests.training.runs import run, small_recipe, take_step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from encoder_engine.models.training_model import Inputs

# Heads of 64, as in most models; the rest is as small as the kernels' blocks allow.
SIZES = [
    "model.config.hidden_size=128",
    "model.config.intermediate_size=192",
    "run.deterministic=false",
    "optimizer.clip_norm=null",
]
NO_DROPOUT = [f"model.config.{name}_dropout_prob=0.0" for name in ("hidden", "attention_probs")]
NUM_PARTS = 3


def make_trainer(corpus: Path, folder: Path, device: str, *settings: str) -> Trainer:
    return Trainer(small_recipe(corpus, *SIZES, f"run.device={device}", *settings), folder)


def parts_of(trainer: Trainer) -> list[Inputs]:
    stream = trainer._batch_stream.steps(0, 1, Position(), lambda _step: NUM_PARTS)
    return list(next(stream).inputs)


def step(trainer: Trainer, parts: list[Inputs]) -> tuple[float, dict[str, Tensor]]:
    """Take a step without a learning rate; return its loss and gradients."""
    found: dict[str, Tensor] = {}

    def keep() -> float:
        named = trainer.model.named_parameters()
        found.update({n: p.grad.detach().clone() for n, p in named if p.grad is not None})
        return 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "_clip_gradient", keep)
        record = take_step(trainer, StepBatches(parts, len(parts), Position()), 0, 0.0)
    return record["loss"], found


PRECISIONS = {
    "float32": ["run.precision=float32"],
    "bfloat16": ["run.precision=bfloat16"],
    "bfloat16 stream": ["run.precision=bfloat16", "run.residual=bfloat16"],
    "float32 stream": ["run.precision=bfloat16", "run.residual=float32"],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize(
    ("num_parts", "graphs"), [(1, "false"), (NUM_PARTS, "false"), (NUM_PARTS, "true")]
)
def test_loss_and_gradients_are_those_of_float64(
    corpus: Path, tmp_path: Path, device: str, precision: list[str], num_parts: int, graphs: str
) -> None:
    settings = [*NO_DROPOUT, "data.form=pairs"]
    own = [*precision, *settings]
    ours = make_trainer(corpus, tmp_path / "ours", device, *own, f"run.graphs={graphs}")
    exact = make_trainer(corpus, tmp_path / "exact", "cpu", "run.precision=float64", *settings)
    parts = parts_of(ours)[:num_parts]
    eager = make_trainer(corpus, tmp_path / "eager", device, *own)
    loss, gradients = step(ours, parts)
    with ops.use("reference"):
        true_loss, truth = step(exact, parts)
    with ops.use("aten"):
        eager_loss, plain = step(eager, parts)
    assert gradients.keys() == plain.keys() == truth.keys()
    sizes = {
        name: max(float(g.abs().max()), torch.finfo(g.dtype).tiny) for name, g in truth.items()
    }

    def joined(found: dict[str, Tensor], mean: float) -> Tensor:
        scaled = [(found[name].cpu().double() / size).flatten() for name, size in sizes.items()]
        return torch.cat([*scaled, torch.tensor([mean / true_loss], dtype=torch.float64)])

    assert_within_budget(
        joined(gradients, loss).float(),
        joined(plain, eager_loss).float(),
        joined(truth, true_loss),
        terms=sum(part.batch.num_tokens for part in parts),
    )


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interrupted_run_goes_on_bit_for_bit(
    corpus: Path, tmp_path: Path, device: str, precision: str
) -> None:
    settings = [*SIZES, f"run.device={device}", f"run.precision={precision}"]
    run(corpus, tmp_path / "whole", *settings)
    run(corpus, tmp_path / "broken", *settings, stop_at=7)
    run(corpus, tmp_path / "broken", *settings)
    for name in ("log.jsonl", "model/model.safetensors"):
        whole, broken = (tmp_path / run_name / name for run_name in ("whole", "broken"))
        assert whole.read_bytes() == broken.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param([], marks=pytest.mark.exhaustive),
        pytest.param(["data.form=pairs"], marks=pytest.mark.exhaustive),
        ["run.ema=0.9"],
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "precision", [pytest.param("float32", marks=pytest.mark.exhaustive), "bfloat16"]
)
def test_graphs_have_the_bits_of_their_layouts(
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    precision: str,
    settings: list[str],
) -> None:
    own = [*SIZES, f"run.device={device}", f"run.precision={precision}", "run.graphs=true"]
    trainer = run(corpus, tmp_path / "graphs", *own, *settings)
    run(corpus, tmp_path / "broken", *own, *settings, stop_at=7)
    run(corpus, tmp_path / "broken", *own, *settings)
    graphs = trainer.gradients.graphs
    assert graphs is not None
    assert graphs.is_captured == (device == "cuda")
    monkeypatch.setattr(step_graphs, "uses_graphs", lambda _device: False)
    run(corpus, tmp_path / "plain", *own, *settings)
    for name in ("log.jsonl", "model/model.safetensors"):
        expected = (tmp_path / "plain" / name).read_bytes()
        assert (tmp_path / "graphs" / name).read_bytes() == expected
        assert (tmp_path / "broken" / name).read_bytes() == expected


@pytest.fixture
def one_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    backend = "nccl" if request.getfixturevalue("device") == "cuda" else "gloo"
    meeting = f"file://{tmp_path}/store"
    dist.init_process_group(backend, init_method=meeting, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("one_process")
def test_one_process_of_ddp_takes_the_same_step(corpus: Path, tmp_path: Path, device: str) -> None:
    settings = ["run.precision=bfloat16"]
    alone = make_trainer(corpus, tmp_path / "alone", device, *settings)
    parts = parts_of(alone)
    expected, gradients = step(alone, parts)
    trainer = make_trainer(corpus, tmp_path / "ddp", device, *settings)
    trainer._computed = replicate(trainer.model, World(device=trainer.world.device))
    loss, found = step(trainer, parts)
    assert loss == expected
    assert found.keys() == gradients.keys()
    assert all(torch.equal(found[name], gradients[name]) for name in gradients)
