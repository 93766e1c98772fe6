"""What is not finite moves no weight, and is not saved as if it were good."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from encoder_engine.data.loader import Position
from encoder_engine.errors import NonFiniteLossError
from encoder_engine.training import Trainer
from tests.training.runs import run, small_recipe, take_step

if TYPE_CHECKING:
    from pathlib import Path


def test_a_gradient_that_is_not_finite_ends_the_run_before_the_step(
    corpus: Path, tmp_path: Path
) -> None:
    run(corpus, tmp_path / "whole")
    trainer = Trainer(small_recipe(corpus), tmp_path / "broken")
    calls = []

    def overflow(gradient: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        # The loss of the sixth step is finite, one of its gradients is not.
        return gradient / 0.0 if len(calls) == 6 * 3 else gradient

    trainer.model.encoder.embedding.positions.weight.register_hook(overflow)  # type: ignore[union-attr]
    with pytest.raises(NonFiniteLossError, match=r"norm is (nan|inf) at step 6.*another folder"):
        trainer.run()
    assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())
    assert trainer.checkpoints.steps() == [4]
    run(corpus, tmp_path / "broken")
    log = (tmp_path / "broken/log.jsonl").read_bytes()
    assert log == (tmp_path / "whole/log.jsonl").read_bytes()


def test_a_run_whose_every_step_overflows_float16_ends(corpus: Path, tmp_path: Path) -> None:
    settings = ["run.precision=float16", "run.steps=60", "run.checkpoint_every=60"]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "run")
    weight = trainer.model.encoder.embedding.positions.weight  # type: ignore[union-attr]
    weight.register_hook(lambda gradient: gradient / 0.0)
    with pytest.raises(NonFiniteLossError, match=r"overflows float16 at a scale of 6\.1.*e-05"):
        trainer.run()
    assert not trainer.checkpoints.steps()
    lines = (tmp_path / "run/log.jsonl").read_text("utf-8").splitlines()
    assert lines
    for line in lines:
        assert json.loads(line, parse_constant=pytest.fail)["norm"] is None


def test_where_float16_overflows_no_optimizer_steps(corpus: Path, tmp_path: Path) -> None:
    recipe = small_recipe(corpus, "run.precision=float16", "optimizer.name=muon")
    trainer = Trainer(recipe, tmp_path / "run")
    batches = next(trainer._batch_stream.steps(0, 1, Position(), lambda _step: 1))
    weight = dict(trainer.model.named_parameters())["encoder.blocks.0.feed_forward.up.weight"]
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    scale = trainer.scaler.get_scale()
    handle = weight.register_hook(lambda gradient: gradient / 0.0)  # type: ignore[no-untyped-call]
    take_step(trainer, batches, 0, 0.1)
    assert all(torch.equal(before[n], p) for n, p in trainer.model.named_parameters())
    assert trainer.scaler.get_scale() < scale
    handle.remove()
    while all(torch.equal(before[n], p) for n, p in trainer.model.named_parameters()):
        assert trainer.scaler.get_scale() > 1e-3
        take_step(trainer, batches, 0, 0.1)
    assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())
