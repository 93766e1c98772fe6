"""Holding a transformers model to one mode and to the rates of dropout that its config states."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from encoder_engine.errors import UnsupportedFeatureError

__all__ = ["DropoutCheck"]


class DropoutCheck:
    """What dropout a model was made with: the engine computes that, in all layers alike."""

    def __init__(self, base: Any) -> None:
        self._base = base
        # Of what has no parts, dropout alone reads its mode.
        self._parts = [
            (name, module)
            for name, module in base.named_modules()
            if isinstance(module, nn.Dropout) or next(module.children(), None) is not None
        ]
        parts = dict(self._parts)
        with torch.device("meta"), torch.random.fork_rng([]):
            stated = type(base)(copy.deepcopy(base.config))
        self._rates = [
            (name, module, key, rate)
            for name, made in stated.named_modules()
            for key, rate in _rates(made).items()
            if (module := parts.get(name)) is not None
        ]

    def __call__(self) -> None:
        """Raise :class:`UnsupportedFeatureError` for a part with a mode or a rate of its own."""
        training = self._base.training
        for name, module in self._parts:
            if module.training != training:
                modes = {True: "training", False: "evaluating"}
                raise UnsupportedFeatureError(
                    f"{name} is {modes[module.training]}, the encoder {modes[training]}; here all "
                    "layers have one mode: call model.train() or model.eval(), or restore(model)"
                )
        for name, module, key, rate in self._rates if training else ():
            if getattr(module, key, rate) != rate:
                raise UnsupportedFeatureError(
                    f"{name} has {key} = {getattr(module, key)}, the model's config states {rate}; "
                    "here the config decides: make the model of a config with the rates wanted, or "
                    "restore(model)"
                )


def _rates(module: nn.Module) -> dict[str, float]:
    if isinstance(module, nn.Dropout):
        return {"p": module.p}
    return {
        name: value
        for name, value in vars(module).items()
        if "drop" in name and isinstance(value, (int, float)) and not isinstance(value, bool)
    }
