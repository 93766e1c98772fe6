"""Takes a step by GradCache on every rank: python -m torch.distributed.run -m ... FOLDER."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from encoder_engine.training.course import StepBatches
from encoder_engine.training.step.grad_cache import couple
from encoder_engine.training.world import World
from tests.training.test_grad_cache import PAIRS, collect, draw_steps, make_model, seed

if __name__ == "__main__":
    world = World.join("cpu")
    model = make_model(torch.float64, 0.0)
    whole = draw_steps(3)
    mine = whole.inputs[world.rank :: world.size]
    # The second of two ranks has one micro-batch, and repeats the first one.
    filled = mine + whole.inputs[:1] * (2 - len(mine))
    batches = StepBatches(filled, len(mine), whole.next_position)
    scales = {"negatives": world.size / PAIRS}
    inputs, _ = couple(model, batches, world, scales, prepare=seed, casting=nullcontext)
    replicated = DistributedDataParallel(model)
    for place, one in enumerate(inputs):
        last = place == len(inputs) - 1
        with nullcontext() if last else replicated.no_sync():
            found = replicated(one)
            loss = next(iter(found.values())).total
            torch.autograd.backward(loss if place < len(mine) else loss * 0.0)
    if world.is_first:
        torch.save(collect(model), Path(sys.argv[1]) / "gradients.pt")
    world.leave()
