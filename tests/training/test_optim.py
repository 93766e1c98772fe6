"""Optimizers take the steps of their equations, read directly in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.training.adamw import NativeAdamW
from encoder_engine.training.checkpoints import begin_optimizers
from encoder_engine.training.optim import (
    CLEAR_EVERY,
    TINY,
    Lamb,
    StableAdamW,
    clear_tiny_moments,
    clip_gradient,
    make_optimizers,
    set_learning_rate,
)
from encoder_engine.training.recipe import OptimizerRecipe

RATE, BETAS, EPSILON, DECAY = 0.02, (0.9, 0.999), 1e-6, 0.1
Array = np.ndarray[Any, np.dtype[np.float64]]


def gradients(steps: int) -> list[Array]:
    """Draw gradients, one of them a surprise."""
    generator = np.random.default_rng(0)
    drawn = [generator.normal(size=(5, 3)) for _ in range(steps)]
    drawn[3] *= 40.0
    return drawn


def equations(kind: str, weight: Array, drawn: list[Array]) -> Array:
    first = second = np.zeros_like(weight)
    for step, gradient in enumerate(drawn, start=1):
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        mean, square = first / (1 - BETAS[0] ** step), second / (1 - BETAS[1] ** step)
        update = mean / (np.sqrt(square) + EPSILON) + DECAY * weight
        if kind == "lamb":
            rate = RATE * np.linalg.norm(weight) / np.linalg.norm(update)
        else:
            surprise = np.sqrt(np.mean(gradient**2 / np.maximum(square, EPSILON**2)))
            rate = RATE / max(1.0, surprise)
        weight = weight - rate * update
    return weight


@pytest.mark.parametrize(("kind", "made"), [("lamb", Lamb), ("stable", StableAdamW)])
def test_steps_are_those_of_the_equations(kind: str, made: Any) -> None:
    begun = np.random.default_rng(1).normal(size=(5, 3))
    parameter = nn.Parameter(torch.from_numpy(begun.copy()))
    optimizer = made([parameter], lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY)
    drawn = gradients(7)
    for gradient in drawn:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    expected = equations(kind, begun, drawn)
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("made", [Lamb, StableAdamW])
def test_many_tensors_step_as_each_alone(made: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = [(5, 3), (7,), (1, 4), (3,)]

    def draw() -> list[torch.Tensor]:
        return [torch.randn(shape, generator=generator) for shape in shapes]

    together = [nn.Parameter(weight) for weight in draw()]
    alone = [nn.Parameter(weight.detach().clone()) for weight in together]
    optimizers = [made(together), *(made([weight]) for weight in alone)]
    for step in range(3):
        for ours, single, gradient in zip(together, alone, draw(), strict=True):
            # One tensor has no gradient in the second step, and counts a step less from then on.
            left_out = step == 1 and ours is together[1]
            ours.grad = None if left_out else gradient
            single.grad = None if left_out else gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert all(map(torch.equal, together, alone))


def test_without_decay_lamb_still_scales_matrices_and_only_those() -> None:
    matrix, bias = nn.Parameter(torch.full((4, 3), 2.0)), nn.Parameter(torch.full((3,), 2.0))
    optimizer = Lamb([matrix, bias], lr=0.1, weight_decay=0.0)
    for parameter in (matrix, bias):
        parameter.grad = torch.full_like(parameter, 1e-2)
    optimizer.step()
    # Updates are 1 in every place: of a matrix the step is a tenth of itself.
    torch.testing.assert_close(matrix.detach(), torch.full((4, 3), 1.8))
    torch.testing.assert_close(bias.detach(), torch.full((3,), 1.9), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("name", ["adamw", "stable_adamw", "lamb", "muon"])
def test_an_optimizer_that_was_begun_steps_as_a_new_one(name: Any) -> None:
    def train(*, begun: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layers = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(4, 4)])})
        model = nn.ModuleDict({"encoder": layers})
        optimizers = make_optimizers(model, OptimizerRecipe(name=name, learning_rate=0.1))
        if begun:
            begin_optimizers(optimizers)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            for optimizer in optimizers:
                optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    pairs = zip(train(begun=True), train(begun=False), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", ["adamw", "stable_adamw", "lamb", "muon"])
def test_matrices_decay_and_biases_do_not(name: Any) -> None:
    model = nn.ModuleDict({"encoder": nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(4, 4)])})})
    optimizers = make_optimizers(model, OptimizerRecipe(name=name, weight_decay=0.3))
    decays = {
        parameter: group["weight_decay"]
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert {decay for p, decay in decays.items() if p.dim() == 2} == {0.3}
    assert {decay for p, decay in decays.items() if p.dim() == 1} == {0.0}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for optimizer in optimizers:
        optimizer.step()
    assert all(bool((p != b).any()) for p, b in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize("name", ["adamw", "stable_adamw", "lamb", "muon"])
def test_factors_on_the_learning_rate_reach_every_parameter(name: Any) -> None:
    # Muon trained all blocks' matrices with one rate: layer_decay was ignored.
    blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model = nn.ModuleDict({"encoder": nn.ModuleDict({"blocks": blocks}), "head": nn.Linear(4, 2)})
    factors = {"encoder.blocks.0.weight": 0.25, "encoder.blocks.0.bias": 0.5, "head.weight": 4.0}
    optimizers = make_optimizers(model, OptimizerRecipe(name=name), factors)
    set_learning_rate(optimizers, 0.1)
    rates = {
        parameter: group["lr"]
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for parameter_name, parameter in model.named_parameters():
        assert rates[parameter] == 0.1 * factors.get(parameter_name, 1.0), parameter_name


def test_muon_goes_without_matrices_or_without_others() -> None:
    for trained in ("weight", "bias"):
        layer = nn.Linear(4, 4)
        model = nn.ModuleDict({"encoder": nn.ModuleDict({"blocks": nn.ModuleList([layer])})})
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name == trained)
        [optimizer] = make_optimizers(model, OptimizerRecipe(name="muon"))
        expected = torch.optim.Muon if trained == "weight" else torch.optim.AdamW
        assert isinstance(optimizer, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("most", [None, 0.5, 10.0])
def test_a_gradient_is_clipped_as_torch_clips_it(most: float | None, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (nn.Linear(5, 3, dtype=dtype) for _ in range(2))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        one.grad = torch.randn(one.shape, generator=generator, dtype=dtype)
        other.grad = one.grad.clone()
    found = clip_gradient(ours.parameters(), most)
    limit = float("inf") if most is None else most
    expected = float(nn.utils.clip_grad_norm_(theirs.parameters(), limit))
    # Both are rounded once.
    assert math.isclose(found, expected, rel_tol=torch.finfo(dtype).eps)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_adamw_on_a_cpu_takes_the_steps_of_the_equations_and_clips_in_the_same_pass() -> None:
    begun, generator = torch.randn(300, 70, dtype=torch.float64), torch.Generator().manual_seed(1)
    options: dict[str, Any] = {"lr": RATE, "betas": BETAS, "eps": EPSILON, "weight_decay": DECAY}
    made = {
        name: nn.Parameter(begun.to(dtype).clone())
        for name, dtype in (("ours", torch.float32), ("eager", torch.float32), ("truth", None))
    }
    optimizers = {name: torch.optim.AdamW([p], **options) for name, p in made.items()}
    optimizers["ours"] = NativeAdamW([made["ours"]], **options)
    for _ in range(5):
        drawn = torch.randn(begun.shape, generator=generator, dtype=torch.float64)
        for name, parameter in made.items():
            parameter.grad = drawn.to(parameter.dtype)
            clip_gradient([parameter], 3.0, [optimizers[name]])
            optimizers[name].step()
    ours, eager, truth = (made[name].detach() for name in ("ours", "eager", "truth"))
    assert_within_budget(ours, eager, truth, terms=5)
    kept = optimizers["ours"].state[made["ours"]], optimizers["eager"].state[made["eager"]]
    assert kept[0].keys() == kept[1].keys()


@pytest.mark.parametrize("threads", [2, 3])
def test_the_bits_of_a_step_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    def train(num_threads: int) -> tuple[float, bytes]:
        torch.manual_seed(0)
        table = nn.Embedding(2000, 100)
        optimizers = make_optimizers(table, OptimizerRecipe())
        table.weight.grad = torch.randn_like(table.weight)
        before = torch.get_num_threads()
        torch.set_num_threads(num_threads)
        try:
            norm = clip_gradient(table.parameters(), 0.1, optimizers)
            optimizers[0].step()
        finally:
            torch.set_num_threads(before)
        return norm, table.weight.detach().numpy().tobytes()

    assert train(1) == train(threads)


def test_rows_without_gradients_keep_no_denormal_moments_and_the_same_weights() -> None:
    weights = []
    for clears in (False, True):
        torch.manual_seed(0)
        table = nn.Embedding(6, 4)
        with torch.no_grad():
            # Of small gradients, the second moment is denormal soon too.
            table.weight[2:4].mul_(1e-12)
        recipe = OptimizerRecipe(learning_rate=1e-3, betas=(0.9, 0.98))
        [optimizer] = make_optimizers(table, recipe)
        for step in range(16 * CLEAR_EVERY):
            rows = torch.tensor([0, 1] if step else [0, 1, 2, 3])
            torch.autograd.backward(table(rows).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            if clears and (step + 1) % CLEAR_EVERY == 0:
                clear_tiny_moments([optimizer])
        weights.append(table.weight.detach().clone())
        for name in ("exp_avg", "exp_avg_sq"):
            moment = optimizer.state[table.weight][name]
            size = moment[2:4].abs()
            denormal = (size > 0) & (size < torch.finfo(torch.float32).tiny)
            assert bool(denormal.any()) is not clears, name
            assert bool((moment[:2].abs() > TINY).any()), name
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)
