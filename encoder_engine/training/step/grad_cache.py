"""GradCache (Gao et al. 2021): the exact gradient of a loss that couples a step's micro-batches.

How it works:

1. Every micro-batch is embedded without a graph. Only its vectors are kept.
2. The losses of the whole step, over all ranks, and their gradient on the vectors are computed in
   float32. Each rank computes its part, and the parts are summed.
3. The loop computes each micro-batch once more, with the dropout of its number, and differentiates
   the inner product of its vectors with their gradient.

Memory is that of one micro-batch and of the step's vectors. The cost over a plain step is one more
forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from encoder_engine.models.training_model import CoupledModel, Inputs
    from encoder_engine.training.course import StepBatches
    from encoder_engine.training.world import World

__all__ = ["couple"]


def couple(
    model: CoupledModel,
    batches: StepBatches,
    world: World,
    scales: Mapping[str, float],
    *,
    prepare: Callable[[int], None],
    casting: Callable[[], AbstractContextManager[Any]],
) -> tuple[list[Inputs], Tensor]:
    """Compute a step's coupled loss, and its gradient on the vectors of each micro-batch.

    Returns the micro-batches with these gradients, and this rank's sum of each loss.
    scales: the factor of each loss's sum in the loss that is differentiated.
    prepare: called with the number of a micro-batch before it is computed; seeds its dropout.
    casting: a function that makes the context of forward passes (autocast).

    The sums are float64 [losses]. A micro-batch beyond ``num_counted`` gets no gradient.
    """
    counted = batches.inputs[: batches.num_counted]
    parts = []
    for place, inputs in enumerate(counted):
        prepare(place)
        with torch.no_grad(), casting():
            parts.append(model.embed(inputs.to(world.device)))
    vectors, own = _of_all_ranks(parts, batches, model, world)
    targets = {
        name: torch.cat(world.gather(_joined([x.targets[name] for x in counted], like, world)))
        for name, like in batches.inputs[0].targets.items()
        if name not in model.targets_of_vectors
    }
    vectors.requires_grad_()
    losses = model.losses(vectors, targets, (world.rank, world.size))
    loss = torch.stack([scales[name] * losses[name].total for name in scales]).sum()
    if loss.requires_grad:
        # The loss has no gradient where this rank's share of its terms is empty.
        torch.autograd.backward(loss)
    found = torch.zeros_like(vectors) if vectors.grad is None else vectors.grad
    gradient = world.add_up(found)[own]
    pieces = torch.split(gradient, [len(part) for part in parts])
    coupled = [x._replace(gradient=piece) for x, piece in zip(counted, pieces, strict=True)]
    sums = torch.stack([losses[name].total.detach().double() for name in scales])
    return coupled + batches.inputs[batches.num_counted :], sums


def _of_all_ranks(
    parts: list[Tensor], batches: StepBatches, model: CoupledModel, world: World
) -> tuple[Tensor, slice]:
    """Return the vectors of all ranks' texts, concatenated, and the slice that is this rank's."""
    if parts:
        joined = torch.cat(parts)
    else:
        # A rank without a micro-batch of its own: the repeated one tells the width of vectors.
        with torch.no_grad():
            joined = model.embed(batches.inputs[0].to(world.device))[:0]
    gathered = world.gather(joined)
    start = sum(len(rows) for rows in gathered[: world.rank])
    return torch.cat(gathered), slice(start, start + len(joined))


def _joined(parts: list[Tensor], like: Tensor, world: World) -> Tensor:
    return (torch.cat(parts) if parts else like[:0]).to(world.device)
