"""The parts of a static embedder: the facts of its computation, and tokenized windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.embedding.static.model import StaticModel
    from encoder_engine.text import Encoding

__all__ = ["Coverage", "StaticEngine", "TokenizedTexts"]


@dataclass(frozen=True, kw_only=True)
class StaticEngine:
    """The facts of a static model's computation; see :class:`Engine`."""

    model: StaticModel
    num_threads: int
    name: str = "static"
    device: str = "cpu"
    quantization: str | None = None

    @property
    def dtype(self) -> str:
        """The name of the table's dtype."""
        return self.model.table.dtype

    def fingerprint(self) -> str:
        """Return the SHA-256 of the table."""
        return self.model.table.fingerprint()

    def versions(self) -> dict[str, str]:
        """Return no versions: NumPy and the extension decide the bits."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The count of tokens that a table has no row for.

    num_tokens: tokens of all texts, unknown ones included.
    num_unknown: tokens that are left out of the vectors.
    num_empty: texts whose vector is 0, since no token is left.
    """

    num_tokens: int
    num_unknown: int
    num_empty: int


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedTexts:
    """The ids of a window; ``cut``: texts that lost characters before they were tokenized."""

    encoding: Encoding
    first_row: int
    cut: npt.NDArray[np.bool_]
    seconds: float

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """Texts that lost characters or tokens, bool [n]."""
        found: npt.NDArray[np.bool_] = np.asarray(self.encoding.truncated) | self.cut
        return found
