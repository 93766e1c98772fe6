"""A step reads nothing from its device; its numbers are read once the next one is launched."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.data.loader import Position
from encoder_engine.errors import NonFiniteLossError
from encoder_engine.training import Trainer, loop, optim
from encoder_engine.training.checkpoints import begin_optimizers
from encoder_engine.training.loop import Loop
from encoder_engine.training.step.launched import Launched, Numbers
from encoder_engine.training.world import World
from tests.computing import computed_by
from tests.training.runs import run, small_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _torch_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step by torch's fused AdamW, as on a GPU."""
    monkeypatch.setattr(optim, "takes_natively", lambda _tensors: False)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read late on a CPU too."""
    monkeypatch.setattr(loop, "can_read_late", lambda *_, **__: True)


def files_of(folder: Path) -> dict[str, bytes]:
    names = ("log.jsonl", "model/model.safetensors")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize(
    "settings",
    [
        ["optimizer.clip_norm=0.5", "run.ema=0.9"],
        pytest.param(["run.log_every=3", "optimizer.clip_norm=null"], marks=pytest.mark.exhaustive),
        ["run.precision=bfloat16", "run.evaluate_every=3", "run.log_every=3"],
    ],
    ids=" ".join,
)
def test_what_is_read_late_is_the_same_also_after_an_interruption(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: list[str]
) -> None:
    run(corpus, tmp_path / "at once", *settings)
    monkeypatch.setattr(loop, "can_read_late", lambda *_, **__: True)
    run(corpus, tmp_path / "late", *settings)
    stop_at = 6 if "run.log_every=3" in settings else 7
    run(corpus, tmp_path / "broken", *settings, stop_at=stop_at)
    run(corpus, tmp_path / "broken", *settings)
    expected = files_of(tmp_path / "at once")
    assert files_of(tmp_path / "late") == expected
    assert files_of(tmp_path / "broken") == expected


@pytest.mark.usefixtures("late")
def test_a_step_is_launched_before_the_one_before_is_read_and_saved_ones_are_read(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    launch, read, save = Loop._launch, Launched.read, Loop._save

    def launching(self: Loop, batches: Any, step: int, learning_rate: float) -> Launched:
        order.append(f"launch {step + 1}")
        return launch(self, batches, step, learning_rate)

    def reading(self: Launched, weights: Any) -> dict[str, Any]:
        order.append(f"read {self.step + 1}")
        return read(self, weights)

    def saving(self: Loop, state: Any) -> None:
        order.append(f"save {state.step}")
        save(self, state)

    monkeypatch.setattr(Loop, "_launch", launching)
    monkeypatch.setattr(Launched, "read", reading)
    monkeypatch.setattr(Loop, "_save", saving)
    run(corpus, tmp_path / "run", "run.steps=6", "run.checkpoint_every=4", "run.evaluate_every=6")
    assert order == [
        *("launch 1", "launch 2", "read 1", "launch 3", "read 2", "launch 4", "read 3", "read 4"),
        *("save 4", "launch 5", "launch 6", "read 5", "read 6", "save 6"),
    ]


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_after_a_step_that_is_not_finite_no_weight_moves_and_the_run_ends(
    corpus: Path, tmp_path: Path, bad: float
) -> None:
    run(corpus, tmp_path / "whole")
    trainer = Trainer(small_recipe(corpus), tmp_path / "broken")
    calls: list[int] = []

    def overflow(gradient: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        # The loss of the sixth step is finite, one of its gradients is not.
        return gradient * bad if len(calls) == 6 * 3 else gradient

    trainer.model.encoder.embedding.positions.weight.register_hook(overflow)  # type: ignore[union-attr]
    weights: list[dict[str, torch.Tensor]] = []

    def keep(_progress: object) -> None:
        named = trainer.model.named_parameters()
        weights.append({name: p.detach().clone() for name, p in named})

    with pytest.raises(NonFiniteLossError, match=r"norm is (nan|inf) at step 6.*another folder"):
        trainer.run(keep)
    assert len(calls) == 7 * 3, "the seventh step is launched before the sixth is read"
    # Step 5 was read when step 6 was launched, which moved nothing.
    assert len(weights) == 5
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter, weights[-1][name])
    assert trainer.checkpoints.steps() == [4]
    run(corpus, tmp_path / "broken")
    assert files_of(tmp_path / "broken") == files_of(tmp_path / "whole")


@pytest.mark.usefixtures("late")
def test_a_loss_that_is_not_finite_is_named(corpus: Path, tmp_path: Path) -> None:
    recipe = small_recipe(corpus, "run.checkpoint_every=12")
    trainer = Trainer(recipe, tmp_path / "run")
    launch = trainer._launch

    def spoil(batches: Any, step: int, learning_rate: float) -> Launched:
        if step == 2:
            with torch.no_grad():
                trainer.model.encoder.embedding.tokens.weight.fill_(torch.nan)
        return launch(batches, step, learning_rate)

    trainer._launch = spoil  # type: ignore[method-assign]
    with pytest.raises(NonFiniteLossError, match="the loss is nan at step 3"):
        trainer.run()
    assert not trainer.checkpoints.steps()


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Compute on a device without values, which raises where it is read, as a GPU would."""
    fused = sys.modules["torch.optim.optimizer"]
    monkeypatch.setattr(fused, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    # Autocast does not know the device.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device=None: False)
    # Its AdamW takes no learning rate of its own.
    monkeypatch.setattr(loop, "hold_learning_rates", lambda _optimizers: None)
    with computed_by("triton", requires_grad=True):
        yield World(device=torch.device("meta"))


def launch(trainer: Trainer) -> Launched:
    begin_optimizers(trainer.optimizers)
    stream = trainer._batch_stream.steps(0, 1, Position(), lambda _step: 3)
    return trainer._launch(next(stream), 0, 1e-3)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["data.form=pairs", "run.ema=0.9"],
        ["data.form=swapped_pairs", "objectives.unit=span", "objectives.span_boundary=true"],
        [
            "model.config.model_type=electra",
            "model.config.embedding_size=12",
            "objectives.generator.intermediate_size=8",
        ],
        # In layouts of fixed sizes even the lengths of the batch are on the device alone.
        ["run.graphs=true"],
        ["run.graphs=true", "data.form=pairs"],
        ["run.graphs=true", "objectives.unit=span", "objectives.span_boundary=true"],
    ],
    ids=" ".join,
)
def test_a_step_reads_nothing_from_its_device(
    corpus: Path, tmp_path: Path, meta: World, settings: list[str]
) -> None:
    recipe = small_recipe(corpus, "run.deterministic=false", *settings)
    trainer = Trainer(recipe, tmp_path / "run", world=meta)
    launched = launch(trainer)
    assert isinstance(launched.numbers, Numbers)
    with pytest.raises(RuntimeError, match="meta"):
        launched.read(trainer.model.weights)


@pytest.mark.usefixtures("late")
def test_a_batch_that_was_not_checked_on_the_host_is_read(
    corpus: Path, tmp_path: Path, meta: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(small_recipe(corpus, "run.deterministic=false"), tmp_path, world=meta)
    monkeypatch.setattr(trainer.gradients, "_checked", lambda inputs: inputs)
    with pytest.raises(RuntimeError, match="meta"):
        launch(trainer)
