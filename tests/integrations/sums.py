"""How many terms a model sums up, one sum after another: by which rounding may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["terms_of", "terms_of_gradients"]


def terms_of(model: nn.Module, *, num_tokens: int = 0) -> int:
    """Count the terms of the longest sum, once for each module with weights on the way.

    The longest is as long as the widest row of a weight, or as a text that attention mixes.
    """
    with_weights = [m for m in model.modules() if next(m.parameters(False), None) is not None]
    widths = [size for m in with_weights for p in m.parameters(False) for size in p.shape[1:]]
    return len(with_weights) * max(1, num_tokens, *widths)


def terms_of_gradients(model: nn.Module, *, num_tokens: int) -> int:
    """Count the terms that gradients sum up: those of :func:`terms_of`, for every token."""
    return terms_of(model) * max(1, num_tokens)
