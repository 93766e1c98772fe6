"""Evaluates a model on held-out text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from encoder_engine.objectives.objective import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from encoder_engine.data.loader import Loader, Slice
    from encoder_engine.models.training_model import Inputs
    from encoder_engine.objectives.objective import Objective
    from encoder_engine.training.world import World

__all__ = ["Evaluation"]


class Evaluation:
    """Evaluates a model on the first held-out batches, with the same masks and draws every time.

    ``names``: the names of the model's losses. ``num_tokens``: batches are read until they have so
    many tokens.
    """

    def __init__(
        self,
        loader: Loader,
        objectives: Sequence[Objective],
        names: Sequence[str],
        world: World,
        *,
        num_tokens: int,
    ) -> None:
        self._loader, self._objectives, self._world = loader, objectives, world
        self._names, self._num_tokens = names, num_tokens

    def _slices(self) -> list[Slice]:
        """List the batches to evaluate, of at most one epoch, so that no text is counted twice."""
        slices, seen = [], 0
        for slice_ in self._loader.slices():
            if slice_.epoch or seen >= self._num_tokens:
                break
            slices.append(slice_)
            seen += int(self._loader.samples.lengths[slice_.numbers].sum())
        return slices

    def _inputs(self) -> Iterator[tuple[Inputs, bool]]:
        """Yield this process's batches, and whether each counts; a repeated batch does not.

        Every process gets the same number, because FSDP runs in step. Random draws of the model,
        such as ELECTRA's tokens, are seeded by the batch's index over all processes.
        """
        slices, size = self._slices(), self._world.size
        mine = slices[self._world.rank :: size]
        for place in range(-(-len(slices) // size)):
            counts = place < len(mine)
            torch.manual_seed(place * size + self._world.rank)
            batch = self._loader.batch(mine[place] if counts else slices[0])
            yield prepare(batch, self._objectives, seed=self._loader.seed), counts

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return a model's mean loss and accuracy by objective, and MLM's pseudo-perplexity."""
        training = model.training
        model.eval()
        names = list(self._names)
        sums = [0.0] * (3 * len(names))
        for inputs, counts in self._inputs():
            found = model(inputs.to(self._world.device))
            if not counts:
                continue
            for place, name in enumerate(names):
                loss = found[name]
                correct = math.nan if loss.num_correct is None else float(loss.num_correct)
                for offset, value in enumerate((float(loss.total), loss.num_terms, correct)):
                    sums[3 * place + offset] += value
        model.train(training)
        sums = self._world.sums(sums)
        scores: dict[str, float] = {}
        for place, name in enumerate(names):
            total, number, correct = sums[3 * place : 3 * place + 3]
            scores[f"{name}_loss"] = total / max(number, 1.0)
            if not math.isnan(correct):
                scores[f"{name}_accuracy"] = correct / max(number, 1.0)
        if "mlm_loss" in scores:
            scores["pseudo_perplexity"] = math.exp(min(scores["mlm_loss"], 700.0))
        return scores
