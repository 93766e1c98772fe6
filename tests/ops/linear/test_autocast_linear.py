"""The dense layer of training under autocast on a GPU, here on a CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.ops import gpu
from encoder_engine.ops.aten import autocast_linear
from encoder_engine.ops.aten.autocast_linear import NarrowWeights
from encoder_engine.ops.testing import assert_within_budget
from tests.ops.cases import rows

Layer = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "is_gpu", lambda _: True)


def layer(*, bias: bool = True, input_dtype: torch.dtype = torch.float32) -> Layer:
    x = rows(40, 24, seed=1, dtype=input_dtype, device="cpu").requires_grad_()
    weight = rows(16, 24, seed=2, dtype=torch.float32, device="cpu").requires_grad_()
    offset = rows(1, 16, seed=3, dtype=torch.float32, device="cpu")[0]
    return x, weight, offset.requires_grad_() if bias else None


def compute(given: Layer) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return ops.linear(*given, implementation="aten")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_value_and_gradients(bias: bool, input_dtype: torch.dtype) -> None:
    given, by_autocast = (layer(bias=bias, input_dtype=input_dtype) for _ in range(2))
    output = compute(given)
    with torch.autocast("cpu", torch.bfloat16):
        expected = F.linear(*by_autocast)
    assert torch.equal(output, expected)
    grad_output = rows(40, 16, seed=4, dtype=torch.bfloat16, device="cpu")
    torch.autograd.backward(output, grad_output)
    torch.autograd.backward(expected, grad_output)
    x, weight, offset = (None if x is None else x.detach().double().requires_grad_() for x in given)
    assert x is not None
    assert weight is not None
    torch.autograd.backward(F.linear(x, weight, offset), grad_output.double())
    exact = (x, weight, offset)
    for ours, plain, truth in zip(given, by_autocast, exact, strict=True):
        if ours is None or plain is None or truth is None:
            continue
        assert ours.grad is not None
        assert plain.grad is not None
        assert truth.grad is not None
        assert ours.grad.dtype == ours.dtype
        assert_within_budget(ours.grad, plain.grad, truth.grad, terms=40)


def test_gradient_is_differentiated_again() -> None:
    x, weight, _ = layer(bias=False)
    found = []
    for computed in (compute((x, weight, None)), x @ weight.T):
        (first,) = torch.autograd.grad(computed.float().square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), weight)[0])
    # bfloat16 has 8 bits; a wrong term would be of the size of the whole.
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 2**-6


def test_a_frozen_weight_gets_no_gradient() -> None:
    x, weight, bias = layer()
    weight.requires_grad_(False)
    torch.autograd.backward(compute((x, weight, bias)).sum())
    assert weight.grad is None
    assert x.grad is not None


def test_it_is_chosen_for_training_under_autocast_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> torch.Tensor:
        raise AssertionError("it must not be called")

    monkeypatch.setattr(autocast_linear, "linear", refuse)
    given = layer()
    with pytest.raises(AssertionError):
        compute(given)
    with torch.no_grad():
        compute(given)
    ops.linear(*given, implementation="aten")


def test_narrow_weights_are_read_until_they_are_cast_again() -> None:
    _, weight, bias = given = layer()
    assert bias is not None
    narrow = NarrowWeights([weight, bias, weight], torch.bfloat16)
    before = compute(given)
    with narrow.used():
        with torch.no_grad():
            weight.mul_(2.0)
            bias.mul_(2.0)
        assert torch.equal(compute(given), before)
        narrow.update()
        doubled = compute(given)
    assert torch.equal(doubled, 2.0 * before)
    with torch.no_grad():
        weight.mul_(0.5)
        bias.mul_(0.5)
    with narrow.used():
        assert torch.equal(compute(given), before)
    with torch.no_grad():
        weight.mul_(2.0)
        bias.mul_(2.0)
    assert torch.equal(compute(given), doubled)
    torch.autograd.backward(compute(given).sum())
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
