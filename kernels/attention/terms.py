"""The terms of attention besides queries, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from ..common.layout import Selection


class Disentangled(NamedTuple):
    """Disentangled attention: products of content and relative position (He et al. 2021).

    ``key_NHD``: position keys of N distances, multiplied by the query; or None.
    ``query_NHD``: position queries of N distances, multiplied by the key; or None.
    ``entries_R`` int64 [2 r + 1]: the entry n of each distance from -r to r.
    """

    key_NHD: Tensor | None
    query_NHD: Tensor | None
    entries_R: Tensor


class Terms(NamedTuple):
    """The options of attention; :func:`encoder_engine.ops.attention` explains each.

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
        """Return the names of the given terms, as arguments of ``ops.attention``."""
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
