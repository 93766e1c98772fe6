"""Hold an operation's output and every gradient to the budget."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.budget import assert_within_budget, largest

Function = Callable[..., Tensor]


def compare(
    ours: Function, eager: Function, truth: Function, inputs: dict[str, Tensor], *, terms: int
) -> None:
    """Run three functions of the same named tensors and compare outputs and input gradients.

    ``truth`` gets the inputs in float64. The gradient flows back from one fixed random weighting.
    ``terms`` is the length of the operation's longest sum.
    """
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    found, by_eager, true = (
        _run(function, given)
        for function, given in ((ours, inputs), (eager, inputs), (truth, wide))
    )
    size = largest(*wide.values(), *true.values())
    for name, expected in true.items():
        assert_within_budget(found[name], by_eager[name], expected, name, terms=terms, size=size)


def _run(function: Function, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
    output = function(**leaves)
    generator = torch.Generator().manual_seed(99)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    torch.autograd.backward(output, weights.to(output.dtype).to(output.device))
    results = {"output": output.detach()}
    for name, leaf in leaves.items():
        assert leaf.grad is not None, f"no gradient reached {name}"
        results[f"gradient of {name}"] = leaf.grad
    return results
