"""The training step as users run it, its losses in float64, and the gate of losses.

A step is :class:`encoder_engine.training.loop.Loop`'s own: the batch moved to the device, the terms
counted, forward and backward under autocast, the gradient clipped, the optimizer, and the checks.
"""

from __future__ import annotations

import copy
import gc
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
import torch

from benchmarks.measuring.case import Verdict, Work
from encoder_engine import ops
from encoder_engine.data.loader import Position
from encoder_engine.training.checkpoints import begin_optimizers
from encoder_engine.training.course import StepBatches
from encoder_engine.training.loop import Loop
from encoder_engine.training.recipe import OptimizerRecipe, RunRecipe
from encoder_engine.training.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from encoder_engine.models.training_model import Inputs, TrainingModel
    from encoder_engine.training.recipe import Precision, Residual
    from encoder_engine.training.step.launched import Launched

# bert_base's recipe, but for the schedule: the learning rate is constant.
OPTIMIZER = OptimizerRecipe(learning_rate=1e-4)
# Losses that a gate compares: that of the first weights, and that after a step.
COMPARED = 2


class StepAlone(Loop):
    """The training loop on a copy of a model, of which only steps are taken: no data, no files."""

    def __init__(
        self,
        model: TrainingModel,
        *,
        device: str,
        precision: str,
        graphs: bool = False,
        residual: Residual | None = None,
    ) -> None:
        course: Any = SimpleNamespace(
            run=RunRecipe(precision=precision, graphs=graphs, residual=residual),  # type: ignore[arg-type]
            optimizer=OPTIMIZER,
            max_length=1,  # of which only logged FLOPs depend
            read=lambda **_: None,
            warn=lambda: None,
            build_model=lambda: copy.deepcopy(model),
            batch_stream=lambda _: None,
            evaluation=lambda *_: None,
            best=lambda _: None,
        )

        def settle_precision(precision: Precision, residual: Residual | None) -> None:
            course.run = replace(course.run, precision=precision, residual=residual)

        course.settle_precision = settle_precision
        # In a folder without a recipe.
        super().__init__(course, Path(os.devnull), world=World(device=torch.device(device)))
        begin_optimizers(self.optimizers)
        self._taken = 0

    def take(self, parts: Sequence[Inputs]) -> SupportsFloat:
        """Take a step over micro-batches; return the loss before its update.

        Converting it to float waits for the step, so the host may launch the next one before.
        """
        batches = StepBatches(list(parts), len(parts), Position())
        launched = self._launch(batches, self._taken, OPTIMIZER.learning_rate)
        self._taken += 1
        return _Loss(launched, self.model.weights)

    @torch.no_grad()
    def losses(self, parts: Sequence[Inputs]) -> list[float]:
        """Return the mean loss of each micro-batch; the model has one loss only.

        Micro-batches without a term of the loss, such as a masked token, are left out.
        """
        found = []
        for inputs in parts:
            with self.gradients.casting():
                (loss,) = self.model(inputs.to(self.world.device)).values()
            if loss.num_terms:
                found.append(float(loss.total) / loss.num_terms)
        return found


class _Loss:
    """The loss of a launched step; converting it to float waits for the step."""

    def __init__(self, launched: Launched, weights: Mapping[str, float]) -> None:
        self._launched, self._weights = launched, weights

    def __float__(self) -> float:
        return float(self._launched.read(self._weights)["loss"])


def make_step(
    model: TrainingModel,
    *,
    device: str = "cpu",
    precision: str = "float32",
    graphs: bool = False,
    residual: Residual | None = None,
) -> Callable[[Inputs], SupportsFloat]:
    """Return a call that trains a copy of the model by a step, and returns the loss before it.

    graphs: by CUDA graphs.
    residual: the type of the residual stream; None: the usual one.
    """
    loop = StepAlone(model, device=device, precision=precision, graphs=graphs, residual=residual)
    return lambda inputs: loop.take([inputs])


def make_work(step: Callable[[], Any], steps: int = 1) -> Work:
    """Return a timed call of ``steps`` steps, and the gate's call, which returns the first losses.

    ``step()`` takes a step and returns the loss before its update, which may be read later.
    """
    first: list[Any] = []

    def take() -> Any:
        loss = step()
        if len(first) < COMPARED:
            first.append(loss)
        return loss

    def call() -> float:
        loss = float([take() for _ in range(steps)][-1])
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            # The engine knows the loss before its last optimizer step has ended.
            torch.cuda.synchronize()
        return loss

    def answer() -> list[float]:
        while len(first) < COMPARED:
            take()
        return [float(loss) for loss in first]

    return Work(call=call, answer=answer)


@dataclass(frozen=True, kw_only=True)
class LossesGate:
    """A gate that compares the losses of the first steps with a float64 reference.

    ``allowed``: the largest difference of each; default: the precision of sums in float32.
    """

    truth: Sequence[float]
    allowed: Sequence[float] | None = None

    def __call__(self, losses: Sequence[float]) -> Verdict:
        truth = np.array(self.truth)
        size = float(np.abs(truth).max())
        errors = np.abs(np.array(losses) - truth)
        usual = size * float(np.sqrt(np.finfo(np.float32).eps))
        allowed = np.full(len(truth), usual) if self.allowed is None else np.array(self.allowed)
        figures = {"first_loss": losses[0], "relative_error": float(errors.max()) / size}
        # NaN is not within anything.
        if bool((errors <= allowed).all()):
            return Verdict(passed=True, figures=figures)
        reason = f"the losses are {list(losses)}, the truth is {truth.tolist()}"
        return Verdict(passed=False, figures=figures, reason=f"{reason} within {allowed.tolist()}")


def exact_losses(model: TrainingModel, parts: Sequence[Inputs]) -> list[float]:
    """Compute the losses of the first steps over all ``parts`` in float64 on a CPU."""
    return [mean for mean, _ in _trajectory(model, parts, "cpu", "float64", "reference")]


def make_gate(
    model: TrainingModel, parts: Sequence[Inputs], *, device: str, precision: str
) -> LossesGate:
    """Make a gate that allows twice the error of plain PyTorch in the same precision.

    The error of a mean of many rows may be small by chance. Plain PyTorch's is therefore taken as
    at least the largest error among ``parts``, several micro-batches, over the root of their
    number: so much is left of errors that are independent.
    """
    exact = _trajectory(model, parts, device, "float64", "reference")
    eager = _trajectory(model, parts, device, precision, "aten")
    allowed = []
    for (mean, losses), (true_mean, truth) in zip(eager, exact, strict=True):
        worst = max(abs(loss - true) for loss, true in zip(losses, truth, strict=True))
        allowed.append(2.0 * max(abs(mean - true_mean), worst * len(parts) ** -0.5))
    # Frames in cycles still hold the weights and moments in float64: 8 GB of BERT-large.
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return LossesGate(truth=[mean for mean, _ in exact], allowed=allowed)


def _trajectory(
    model: TrainingModel, parts: Sequence[Inputs], device: str, precision: str, by: str
) -> list[tuple[float, list[float]]]:
    """Return for each of the first steps the loss before it, and that of each micro-batch.

    ``by``: the name of the implementation of all operations.
    """
    with ops.use(by):
        loop = StepAlone(model, device=device, precision=precision)
        found = []
        for _ in range(COMPARED):
            losses = loop.losses(parts)
            found.append((float(loop.take(parts)), losses))
        return found
