"""Keeps the best weights of a run, and stops early when evaluations no longer improve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.json_values import nearest
from encoder_engine.training.average import swapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

__all__ = ["Best", "SelectionRecipe"]


@dataclass(frozen=True, kw_only=True)
class SelectionRecipe:
    """Settings by which evaluations select the best checkpoint.

    ``metric``: the name of the score; None: the task's main score.
    ``goal``: whether a higher or a lower score is better.
    ``patience``: evaluations without a better score after which training stops; None: never.
    """

    metric: str | None = None
    goal: str = "max"
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.goal not in ("max", "min"):
            raise ConfigError(f"selection.goal must be max or min, got {self.goal!r}")
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"selection.patience must be at least 1, got {self.patience}")


class Best:
    """Keeps the weights of the best evaluation; of equal scores the first; NaN is never the best.

    The state is part of a run's checkpoints, so a resumed run selects the same weights. Only
    weights that are trained are kept.
    """

    def __init__(self, model: nn.Module, recipe: SelectionRecipe, metric: str) -> None:
        self._recipe, self._metric = recipe, recipe.metric or metric
        self._weights = {n: p.detach().clone() for n, p in _trained(model)}
        self.step, self.score, self.waited = 0, math.nan, 0

    @property
    def stops(self) -> bool:
        """Return whether to stop training: the last ``patience`` evaluations were no better."""
        return self._recipe.patience is not None and self.waited >= self._recipe.patience

    @torch.no_grad()
    def see(self, step: int, scores: Mapping[str, float], model: nn.Module) -> None:
        """Compare the scores of an evaluation with the best so far; keep the weights if better.

        Raises :class:`ConfigError` if the evaluation lacks the score that the recipe names.
        """
        if self._metric not in scores:
            raise ConfigError(
                f"selection.metric is {self._metric!r}{nearest(self._metric, scores)}; the "
                f"evaluation has {', '.join(scores)}"
            )
        score = scores[self._metric]
        sign = 1.0 if self._recipe.goal == "max" else -1.0
        if math.isnan(score) or (self.step and not sign * score > sign * self.score):
            self.waited += 1
            return
        self.step, self.score, self.waited = step, score, 0
        for name, parameter in _trained(model):
            self._weights[name].copy_(parameter)

    def in_place_of(self, model: nn.Module) -> AbstractContextManager[None]:
        """Give the model the best weights within this context; afterwards its own again."""
        return swapped(self._weights, model)

    def tensors(self) -> dict[str, Tensor]:
        """Return the best weights by their names in the run's checkpoints."""
        return {f"best.{name}": weight for name, weight in self._weights.items()}

    def values(self) -> dict[str, Any]:
        """Return the best step, its score, and the number of evaluations since, as JSON values."""
        return {
            "step": self.step,
            "score": None if math.isnan(self.score) else self.score,
            "waited": self.waited,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`values` returned."""
        self.step, self.waited = values["step"], values["waited"]
        self.score = math.nan if values["score"] is None else values["score"]


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)
