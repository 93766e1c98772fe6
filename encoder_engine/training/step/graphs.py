"""Computes the micro-batches and the update of training steps by CUDA graphs.

How it works: the host takes 30 ms to launch the forward and backward pass of a BERT-base, longer
than a GPU takes for 16,000 tokens. A graph launches all of them at once, and repeats the shapes and
addresses of its capture. A micro-batch is therefore copied into a layout of fixed sizes
(``models/captured/step_inputs.py``). Its gradients are added to those of the weights, and its
losses to ``totals``, all at fixed addresses; its dropout is drawn from the seed of its number, as
without a graph. A second graph clips the gradient, updates the weights and clears the gradient.

A micro-batch is computed in its layout with or without a graph, with the same bits, so that a
resumed run need not know which graphs there were. The first micro-batch of a layout is computed
without a graph, and its kernels are compiled and chosen then. Graphs are captured at the beginning
of a step, when nothing of another step is left in autograd. On a CPU there are no graphs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.errors import ImplementationError
from encoder_engine.models.captured.encoder import uses_graphs
from encoder_engine.models.captured.graph import CapturePool, capture
from encoder_engine.models.captured.step_inputs import StepInputs, StepLayout
from encoder_engine.models.training_model import CoupledModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from encoder_engine.models.training_model import Inputs, TrainingModel
    from encoder_engine.training.recipe import RunRecipe
    from encoder_engine.training.world import World

__all__ = ["StepGraphs", "why_no_graphs"]

LOGGER = logging.getLogger(__name__)
# Predicted, not measured: of more tokens a GPU takes longer than the host, and the rows that fill a
# layout up cost more than launches.
MAX_TOKENS = 32_768
MAX_GRAPHS = 64
NO_GRAPHS = "run.graphs: no CUDA graph is captured: %s"
WITHOUT = "run.graphs: micro-batches are computed without a CUDA graph: %s"


def why_no_graphs(model: TrainingModel, world: World, run: RunRecipe) -> str | None:
    """Return why a run cannot use CUDA graphs, and log it; None: it may use them."""
    reasons = {
        "several processes exchange gradients": world.size > 1,
        "run.compile compiles the encoders": run.compile,
        "run.recompute keeps the state of random numbers": run.recompute,
        "the host chooses the scale of float16": run.precision == "float16",
        "a loss couples the micro-batches of a step": isinstance(model, CoupledModel),
    }
    for reason, holds in reasons.items():
        if holds:
            LOGGER.warning(NO_GRAPHS, reason)
            return reason
    return None


class StepGraphs:
    """The CUDA graphs of training steps: one per layout of micro-batches, and one of the update.

    A layout is the sizes to which a micro-batch is padded.
    casting: a function that makes the context of forward passes (autocast).
    """

    def __init__(
        self,
        model: TrainingModel,
        device: torch.device,
        *,
        casting: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._model, self._device, self._casting = model, device, casting
        self._names = list(model.weights)
        lengths = [encoder.spec.max_length for encoder in model.encoders]
        self._longest = min((length for length in lengths if length is not None), default=None)
        dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
        self._loss_dtype = dtype
        self.totals = torch.zeros(len(self._names), dtype=torch.float64, device=device)
        self._parts: dict[StepLayout, _Part] = {}
        self._update: tuple[Tensor, Any] | None = None
        self._num_updates = 0
        self._pool: CapturePool | None = None
        self._why_not: str | None = None
        self._reasons: set[str] = set()

    @property
    def is_captured(self) -> bool:
        """True once CUDA graphs compute both micro-batches and the update of the weights."""
        return self._update is not None and any(part.graph for part in self._parts.values())

    def begin(self, parts: Sequence[Inputs]) -> None:
        """Zero ``totals``; capture graphs for micro-batches of the step whose layout is known."""
        self.totals.zero_()
        if not uses_graphs(self._device):
            if self._device.type != "cuda":
                self._stop(f"the device is {self._device}, and graphs are for GPUs")
            return
        if self._why_not is not None:
            return
        for inputs in parts:
            layout = self._layout_of(inputs)
            part = None if layout is None else self._parts.get(layout)
            if part is not None and part.graph is None and self._why_not is None:
                part.graph = self._captured(part.compute)

    def compute(self, inputs: Inputs, scales: Mapping[str, float]) -> bool:
        """Add a micro-batch's gradient to the weights' ``grad``, and its losses to ``totals``.

        inputs: the micro-batch, on the host. scales: the factor of each summed loss in the
        differentiated loss. Returns False, and computes nothing, if the micro-batch has no layout.
        """
        layout = self._layout_of(inputs)
        if layout is None:
            return False
        part = self._parts.get(layout)
        if part is None:
            if len(self._parts) >= MAX_GRAPHS:
                self._drop_graphs()
            static = StepInputs(layout, self._device, loss_dtype=self._loss_dtype)
            part = self._parts[layout] = _Part(self, static)
        part.inputs.fill(inputs, [scales[name] for name in self._names])
        if part.graph is None:
            part.compute()
        else:
            part.graph.replay()
        return True

    def update(self, compute: Callable[[], Tensor]) -> Tensor:
        """Call ``compute``, which updates the weights, and return its result.

        From the second call on, a CUDA graph repeats it, if the run uses graphs.
        compute: the same function every time; tensors that it reads and writes must keep their
        addresses. The next update overwrites the result.
        """
        self._num_updates += 1
        # The first update, without a graph, compiles the kernels. A capture computes nothing.
        if self._num_updates > 1 and self._update is None and uses_graphs(self._device):
            results: list[Tensor] = []
            graph = None
            if self._why_not is None:
                graph = self._captured(lambda: results.append(compute()))
            if graph is not None:
                self._update = results[-1], graph
        if self._update is None:
            return compute()
        found, graph = self._update
        graph.replay()
        return found

    def differentiate(self, static: StepInputs) -> None:
        """Compute the micro-batch in a layout's buffers; add to ``totals`` and the gradients."""
        with self._casting():
            found = self._model(static.inputs())
            sums = [found[name].total for name in self._names]
            scaled = [scale * total for scale, total in zip(static.scales, sums, strict=True)]
            loss = torch.stack(scaled).sum()
            self.totals += torch.stack([total.detach().double() for total in sums])
            torch.autograd.backward(loss)

    def _layout_of(self, inputs: Inputs) -> StepLayout | None:
        if inputs.batch.num_tokens > MAX_TOKENS:
            self._without(f"they have more than {MAX_TOKENS:,} tokens")
            return None
        paddings = self._model.paddings(inputs)
        if paddings is None:
            self._stop("the losses of this model have no layout of fixed sizes")
            return None
        layout = StepLayout.of(inputs, paddings, longest=self._longest, num_losses=len(self._names))
        if layout is None:
            self._without("they have sequences without a token, or position ids")
        return layout

    def _without(self, reason: str) -> None:
        """Log why some micro-batches are computed without a layout; each reason is logged once."""
        if reason not in self._reasons:
            LOGGER.warning(WITHOUT, reason)
        self._reasons.add(reason)

    def _captured(self, compute: Callable[[], None]) -> Any:
        """Capture a computation as a CUDA graph; None if that fails: the run then has no graphs."""
        if self._pool is None:
            self._pool = CapturePool.new()
        parameters = list(self._model.parameters())
        without = [parameter for parameter in parameters if parameter.grad is None]
        try:
            _, graph = capture(compute, self._pool, num_warm_ups=0)
            if any(parameter.grad is not None for parameter in without):
                # It would lie in the memory of the graph.
                raise ImplementationError("a weight has a gradient that it did not have before")
        except (RuntimeError, ImplementationError) as error:
            for parameter in without:
                parameter.grad = None
            self._drop_graphs()
            self._stop(str(error).partition("\n")[0])
            return None
        return graph

    def _drop_graphs(self) -> None:
        """Free all CUDA graphs together, because they share memory."""
        self._parts.clear()
        self._update = self._pool = None

    def _stop(self, why_not: str) -> None:
        if self._why_not is None:
            LOGGER.warning(NO_GRAPHS, why_not)
        self._why_not = why_not


class _Part:
    """The input buffers of one layout, and the CUDA graph that computes them once captured."""

    def __init__(self, graphs: StepGraphs, inputs: StepInputs) -> None:
        self._graphs, self.inputs = graphs, inputs
        self.graph: Any = None

    def compute(self) -> None:
        """Compute the micro-batch that the buffers hold, without a graph."""
        self._graphs.differentiate(self.inputs)
