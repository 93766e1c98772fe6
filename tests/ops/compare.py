"""Hold an operation's output and every gradient to the budget."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from encoder_engine.ops.testing import assert_within_budget, largest, max_error

Function = Callable[..., Tensor]
Functions = Callable[..., Tensor | tuple[Tensor, ...]]


def compare(
    ours: Functions,
    eager: Functions,
    truth: Functions,
    inputs: dict[str, Tensor],
    *,
    terms: int,
    gradient_size: float = 0.0,
    weightings: int = 1,
) -> None:
    """Run three functions of the same named tensors and compare outputs and input gradients.

    ``truth`` gets the inputs in float64. The gradient flows back from a fixed random weighting of
    each output. Of a few numbers eager's may be right by luck: its error is the largest of so many
    ``weightings``, ours that of the first.
    ``terms`` is the length of the operation's longest sum; ``gradient_size`` how large the terms of
    a gradient may be, where they are larger than inputs and results because they cancel.
    """
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    found, by_eager, true = (
        _run(function, given)
        for function, given in ((ours, inputs), (eager, inputs), (truth, wide))
    )
    size = largest(*wide.values(), *true.values())
    others = [
        (_run(eager, inputs, weighting=n), _run(truth, wide, weighting=n))
        for n in range(1, weightings)
    ]
    for name, expected in true.items():
        summed = max(size, gradient_size) if name.startswith("gradient") else size
        assert_within_budget(
            found[name],
            by_eager[name],
            expected,
            name,
            terms=terms,
            size=summed,
            eager_error=max((max_error(x[name], y[name]) for x, y in others), default=0.0),
        )


def compare_outputs(
    ours: Functions,
    eager: Functions,
    truth: Functions,
    inputs: dict[str, Tensor],
    *,
    terms: int,
    output_size: float = 0.0,
) -> None:
    """Compare what three functions give for inference; otherwise like :func:`compare`.

    ``output_size`` is how large the terms of an output may be, where they are larger than inputs
    and results because they cancel: GELU is the sum of ``x / 2`` and ``x / 2 * erf(x / sqrt(2))``.
    """
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    with torch.inference_mode():
        found, by_eager, true = (
            _several(function(**given))
            for function, given in ((ours, inputs), (eager, inputs), (truth, wide))
        )
    size = max(largest(*wide.values(), *true), output_size)
    for x, by_torch, expected in zip(found, by_eager, true, strict=True):
        assert_within_budget(x, by_torch, expected, terms=terms, size=size)


def _several(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


def _run(
    function: Functions, inputs: dict[str, Tensor], *, weighting: int = 0
) -> dict[str, Tensor]:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
    outputs = _several(function(**leaves))
    generator = torch.Generator().manual_seed(99 + weighting)
    # Multiples of 1/32, which no dtype rounds: an error shared by all would hide another.
    weights = [
        (torch.randn(x.shape, generator=generator, dtype=torch.float64) * 32).round() / 32
        for x in outputs
    ]
    torch.autograd.backward(
        outputs, [w.to(x.dtype).to(x.device) for w, x in zip(weights, outputs, strict=True)]
    )
    results = {f"output {place}": x.detach() for place, x in enumerate(outputs)}
    for name, leaf in leaves.items():
        assert leaf.grad is not None, f"no gradient reached {name}"
        results[f"gradient of {name}"] = leaf.grad
    return results
