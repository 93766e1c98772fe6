"""Accumulates the gradient of a step over micro-batches, on one of several processes."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encoder_engine.models.linear import dense_weights
from encoder_engine.models.training_model import CoupledModel
from encoder_engine.ops.aten.autocast_linear import NarrowWeights
from encoder_engine.ops.registry import residual
from encoder_engine.training.step.grad_cache import couple
from encoder_engine.training.step.graphs import StepGraphs, why_no_graphs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from encoder_engine.models.training_model import Inputs, TrainingModel
    from encoder_engine.training.course import StepBatches
    from encoder_engine.training.recipe import RunRecipe
    from encoder_engine.training.world import World

__all__ = ["Gradients"]

# The precisions of autocast.
HALF = ("bfloat16", "float16")


class Gradients:
    """Computes the gradients of a model's weights in a training step.

    computed: the model, or its DDP wrapper, which exchanges gradients among processes.
    ``graphs``: computes micro-batches by CUDA graphs; None without ``run.graphs``, or where graphs
    are impossible.
    """

    def __init__(
        self,
        model: TrainingModel,
        computed: nn.Module,
        world: World,
        run: RunRecipe,
        scaler: torch.amp.GradScaler,
    ) -> None:
        self._model, self._computed, self._world = model, computed, world
        self._seed, self._sharding, self._scaler = run.seed, run.sharding, scaler
        self._half = getattr(torch, run.precision) if run.precision in HALF else None
        # None is float32; operations on a CPU mix it with bfloat16 without a cast.
        self._residual = torch.bfloat16 if run.residual == "bfloat16" else None
        self._narrow: NarrowWeights | None = None
        if self._half is not None and world.device.type != "cpu" and run.sharding == "none":
            self._narrow = NarrowWeights(dense_weights(model), self._half)
        self.graphs: StepGraphs | None = None
        if run.graphs and not why_no_graphs(model, world, run):
            self.graphs = StepGraphs(model, world.device, casting=self.casting)

    @contextmanager
    def casting(self) -> Iterator[None]:
        """Return the context of the model's forward passes: autocast to the run's precision."""
        if self._half is None:
            yield
            return
        with (
            residual(self._residual),
            torch.autocast(self._world.device.type, dtype=self._half),
        ):
            yield

    def add_up(self, batches: StepBatches, step: int, terms: Mapping[str, float]) -> Tensor:
        """Add the gradients of a step's micro-batches to the ``grad`` of the model's weights.

        terms: the number of terms of each loss, over all micro-batches and processes. Returns the
        sum of each loss over all processes, float64 [losses].
        """
        with nullcontext() if self._narrow is None else self._narrow.used():
            return self._world.add_up(self._added_up(batches, step, terms))

    def _added_up(self, batches: StepBatches, step: int, terms: Mapping[str, float]) -> Tensor:
        """Add the gradients to the weights' ``grad``; return this process's sum of each loss."""
        model, world = self._model, self._world
        batches = batches._replace(inputs=[self._checked(inputs) for inputs in batches.inputs])
        totals = torch.zeros(len(model.weights), dtype=torch.float64, device=world.device)
        if self.graphs is not None:
            self.graphs.begin(batches.inputs)
            totals = self.graphs.totals
        parts, scales = batches.inputs, self.scales(terms)
        if isinstance(model, CoupledModel) and len(parts) * world.size > 1:
            parts, totals = couple(
                *(model, batches, world, scales),
                prepare=lambda place: self.seed(step, place),
                casting=self.casting,
            )
        for place, inputs in enumerate(parts):
            self.seed(step, place)
            if self.graphs is not None and self.graphs.compute(inputs, scales):
                continue
            with self._synchronised(place == len(parts) - 1), self.casting():
                loss, sums = self.loss(inputs, scales)
                if place >= batches.num_counted:
                    loss = loss * 0.0
                else:
                    totals += sums
                torch.autograd.backward(self._scaler.scale(loss))
        return totals

    def _checked(self, inputs: Inputs) -> Inputs:
        """Check a micro-batch on the host, because a check on a GPU would wait for the device."""
        return inputs._replace(batch=self._model.encoder.check_batch(inputs.batch))

    def seed(self, step: int, place: int) -> None:
        """Seed dropout and sampling by the step and the micro-batch's place on this rank."""
        number = place * self._world.size + self._world.rank
        drawn = np.random.SeedSequence((self._seed, step, number))
        torch.manual_seed(int(drawn.generate_state(1)[0]))

    def scales(self, terms: Mapping[str, float]) -> dict[str, float]:
        """Return, by name, the factor by which each loss's sum enters the loss to differentiate."""
        # DDP and FSDP average gradients over ranks: multiplied by their number beforehand.
        size = self._world.size
        return {n: w * size / max(terms[n], 1.0) for n, w in self._model.weights.items()}

    def loss(self, inputs: Inputs, scales: Mapping[str, float]) -> tuple[Tensor, Tensor]:
        """Return the scalar to differentiate for a micro-batch, and the sum of each loss.

        The sums are float64 [losses]; float32 zeros if the micro-batch has its vectors' gradient.
        """
        found = self._computed(inputs.to(self._world.device))
        if inputs.gradient is not None:
            # The sums were computed with the gradient.
            return found["coupled"].total, torch.zeros(len(scales), device=self._world.device)
        loss = torch.stack([scale * found[name].total for name, scale in scales.items()]).sum()
        return loss, torch.stack([found[name].total.detach().double() for name in scales])

    def _synchronised(self, last: bool) -> AbstractContextManager[Any]:
        """Return a context for the backward pass: ranks exchange gradients only if ``last``."""
        if self._world.size == 1:
            return nullcontext()
        if self._sharding == "full":
            self._model.set_requires_gradient_sync(last)  # type: ignore[operator]
            return nullcontext()
        context: AbstractContextManager[Any] = (
            nullcontext() if last else self._computed.no_sync()  # type: ignore[operator]
        )
        return context
