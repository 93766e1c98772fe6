"""Stacks a checkpoint's tensors into parameters, and splits parameters into tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from encoder_engine.families.facts.names import Origin

__all__ = ["stack_tensors", "unstack_parameter"]


def stack_tensors(origin: Origin, tensors: Mapping[str, Tensor]) -> Tensor:
    """Stack a checkpoint's tensors along the first dimension into one parameter."""
    parts = [tensors[name] for name in origin.names]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return _swap_halves(whole) if origin.halves_swapped else whole


def unstack_parameter(origin: Origin, parameter: Tensor) -> dict[str, Tensor]:
    """Split one parameter into a checkpoint's tensors, by name."""
    whole = _swap_halves(parameter) if origin.halves_swapped else parameter
    parts = (part.contiguous() for part in whole.chunk(len(origin.names)))
    return dict(zip(origin.names, parts, strict=True))


def _swap_halves(whole: Tensor) -> Tensor:
    return torch.cat(whole.chunk(2)[::-1])
