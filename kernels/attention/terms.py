"""What attention consists of besides queries, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Selection


class Disentangled(NamedTuple):
    """What query and key say of the distance between them, besides of each other (He et al. 2021).

    N learned vectors stand for distances: ``key_NHD`` meets the query, ``query_NHD`` the key, and
    either may be None. ``entries_R``, int64 [2 r + 1], says which stands for a distance of -r to r.
    """

    key_NHD: Tensor | None
    query_NHD: Tensor | None
    entries_R: Tensor


class Terms(NamedTuple):
    """What shapes a row's scores and weights; :func:`encoder_engine.ops.attention` explains each.

    A query at place i of its sequence sees the key at place j where ``|j - i| <= window`` or either
    is among ``global_rows`` and, if ``causal``, ``j <= i``. Its score is
    ``scale * q @ k - slopes_H[h] * |j - i| + bias_HR[h, clamp(j - i, -R, R) + R]``, to which
    ``disentangled`` adds ``scale * (q @ key_NHD[n, h] + k @ query_NHD[n, h])``, n the distance's
    entry.
    """

    scale: float
    dropout: float = 0.0
    window: int | None = None
    causal: bool = False
    slopes_H: Tensor | None = None
    bias_HR: Tensor | None = None
    query_rows: Selection | None = None
    global_rows: Selection | None = None
    disentangled: Disentangled | None = None

    def names(self) -> tuple[str, ...]:
        """Name the terms that are there, as the arguments of ``ops.attention`` are named."""
        given = {
            "window": self.window is not None,
            "causal": self.causal,
            "alibi_slopes": self.slopes_H is not None,
            "relative_bias": self.bias_HR is not None,
            "query_rows": self.query_rows is not None,
            "global_rows": self.global_rows is not None,
            "disentangled": self.disentangled is not None,
        }
        return tuple(name for name, there in given.items() if there)
