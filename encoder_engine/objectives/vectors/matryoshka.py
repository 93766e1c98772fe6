"""Matryoshka (Kusupati et al. 2022): a loss on several prefixes of the vectors at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F  # noqa: N812

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["Matryoshka"]


@dataclass(frozen=True, kw_only=True)
class Matryoshka:
    """Sums a loss over prefixes of the vectors, each prefix divided by its Euclidean norm.

    ``dimensions``: the lengths of the prefixes. ``weights``: the weights of their losses; None: 1
    each. Raises :class:`ConfigError` for a dimension below 1, and for another number of weights.
    """

    dimensions: tuple[int, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.dimensions or min(self.dimensions) < 1:
            raise ConfigError(f"dimensions must be numbers of at least 1, got {self.dimensions}")
        if self.weights is not None and len(self.weights) != len(self.dimensions):
            raise ConfigError(
                f"{len(self.dimensions)} dimensions need as many weights, got {len(self.weights)}"
            )

    def __call__(self, loss: Callable[[Tensor], Tensor], vectors_ND: Tensor) -> Tensor:
        """Return the weighted sum of the loss of each prefix of the vectors.

        Raises :class:`ConfigError` for a dimension beyond D.
        """
        if max(self.dimensions) > vectors_ND.shape[1]:
            raise ConfigError(
                f"dimension {max(self.dimensions)} is beyond the {vectors_ND.shape[1]} features of "
                "the vectors; name smaller ones"
            )
        weights = self.weights or (1.0,) * len(self.dimensions)
        total = vectors_ND.new_zeros(())
        for dimension, weight in zip(self.dimensions, weights, strict=True):
            total = total + weight * loss(F.normalize(vectors_ND[:, :dimension], dim=1))
        return total
