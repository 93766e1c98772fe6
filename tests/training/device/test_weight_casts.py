"""Weights of dense layers are rounded once a step, and every bit is that of autocast."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_engine import ops
from encoder_engine.data.loader import Position
from encoder_engine.models.linear import Linear
from encoder_engine.training import Trainer
from encoder_engine.training.step.weight_casts import HeldCasts, WeightCasts
from tests.training.runs import small_recipe

if TYPE_CHECKING:
    from pathlib import Path

NUM_PARTS = 3


class Casts(TorchDispatchMode):
    """Counts the casts of tensors to bfloat16, by their storage."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and compute."""
        keywords = kwargs or {}
        if func is torch.ops.aten._to_copy.default and keywords.get("dtype") == torch.bfloat16:
            self.counts[args[0].data_ptr()] += 1
        return func(*args, **keywords)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("model_type", ["bert", "albert"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_weight_is_rounded_once_in_a_step_with_the_same_gradients(
    corpus: Path, tmp_path: Path, model_type: str, dtype: torch.dtype, held: bool
) -> None:
    # Widths of whole blocks: others are filled up, which hides the weight.
    sizes = [f"model.config.{name}=32" for name in ("hidden_size", "intermediate_size")]
    settings = [*sizes, f"model.config.model_type={model_type}", "run.deterministic=false"]
    if model_type == "albert":
        sizes = ["embedding_size=32", "num_hidden_groups=1", "inner_group_num=1"]
        settings += [f"model.config.{size}" for size in sizes]
    precision = str(dtype).removeprefix("torch.")
    recipe = small_recipe(corpus, *settings, f"run.precision={precision}")
    trainer = Trainer(recipe, tmp_path / "run")
    stream = trainer._batch_stream.steps(0, 1, Position(), lambda _step: NUM_PARTS)
    parts = next(stream).inputs
    layers = [layer for layer in trainer.model.modules() if type(layer) is Linear]
    names = [name for name, _ in trainer.model.named_parameters()]

    def gradients(*, once: bool) -> tuple[dict[str, torch.Tensor], Casts]:
        trainer.model.zero_grad()
        casts = WeightCasts(trainer.model, dtype)
        for_graphs = HeldCasts(trainer.model, dtype)
        with ExitStack() as stack:
            stack.enter_context(ops.use("aten"))
            counted = stack.enter_context(Casts())
            if once and held:
                for_graphs.refresh()
            if once:
                stack.enter_context((for_graphs if held else casts).in_place())
            for place, inputs in enumerate(parts):
                casts.begin_micro_batch()
                trainer.gradients.seed(0, place)
                with trainer.gradients.casting():
                    loss, _ = trainer.gradients.loss(inputs, {"mlm": 0.01})
                    torch.autograd.backward(loss)
        named = trainer.model.named_parameters()
        return {n: p.grad.clone() for n, p in named if p.grad is not None}, counted

    expected, _ = gradients(once=False)
    found, counted = gradients(once=True)
    assert [name for name, _ in trainer.model.named_parameters()] == names
    assert all(isinstance(layer.weight, torch.nn.Parameter) for layer in layers)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {g.dtype for g in found.values()} == {torch.float32}
    if dtype == torch.bfloat16 and not held:
        # A layer that ALBERT's blocks share is rounded again for each block but the first.
        usual = {1, 1 + NUM_PARTS} if model_type == "albert" else {1}
        rounded = {counted.counts[layer.weight.data_ptr()] for layer in layers}
        assert rounded == usual
