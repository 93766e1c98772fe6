"""What attention consists of besides queries, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Selection


class Terms(NamedTuple):
    """What shapes a row's scores and weights; :func:`encoder_engine.ops.attention` explains each.

    A query at place i of its sequence sees the key at place j where ``|j - i| <= window`` or either
    is among ``global_rows`` and, if ``causal``, ``j <= i``. Its score is
    ``scale * q @ k - slopes_H[h] * |j - i| + bias_HR[h, clamp(j - i, -R, R) + R]``.
    """

    scale: float
    dropout: float = 0.0
    window: int | None = None
    causal: bool = False
    slopes_H: Tensor | None = None
    bias_HR: Tensor | None = None
    query_rows: Selection | None = None
    global_rows: Selection | None = None

    def names(self) -> tuple[str, ...]:
        """Name the terms that are there, as the arguments of ``ops.attention`` are named."""
        given = {
            "window": self.window is not None,
            "causal": self.causal,
            "alibi_slopes": self.slopes_H is not None,
            "relative_bias": self.bias_HR is not None,
            "query_rows": self.query_rows is not None,
            "global_rows": self.global_rows is not None,
        }
        return tuple(name for name, there in given.items() if there)
