"""Weights that a training loop casts once a step are those of that step, here on a CPU."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest
import torch

from encoder_engine import ops
from encoder_engine.models.linear import dense_weights
from encoder_engine.ops.aten import autocast_linear
from encoder_engine.ops.aten.autocast_linear import NarrowWeights
from encoder_engine.training import Trainer
from tests.training.runs import small_recipe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["adamw", "stable_adamw", "lamb", "muon"])
@pytest.mark.parametrize("graphs", ["false", "true"])
def test_each_step_reads_the_weights_of_the_one_before(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, graphs: str
) -> None:
    few = ["run.steps=4", "run.precision=bfloat16", "run.deterministic=false"]
    settings = [*few, f"optimizer.name={name}", f"run.graphs={graphs}"]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path)
    # As on a GPU.
    aten = importlib.import_module("encoder_engine.ops.aten.linear")
    monkeypatch.setattr(aten, "_trains_on_gpu", lambda *_: torch.is_grad_enabled())
    weights = dense_weights(trainer.model)
    trainer.gradients._narrow = NarrowWeights(weights, torch.bfloat16)
    cast = autocast_linear._cast
    num_copies, seen = 0, set()

    def checked(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        nonlocal num_copies
        found = cast(weight, dtype)
        assert torch.equal(found, weight.to(dtype))
        num_copies += any(found is copy for _, copy in autocast_linear._narrow.values())
        seen.add(float(weight.detach().double().sum()))
        return found

    monkeypatch.setattr(autocast_linear, "_cast", checked)
    with ops.use("aten", operation="linear"):
        trainer.run()
    assert num_copies >= 4 * len({id(weight) for weight in weights})
    # They changed from step to step.
    assert len(seen) > len({id(weight) for weight in weights})
