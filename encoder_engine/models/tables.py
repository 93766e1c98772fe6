"""Tables of learned vectors."""

from __future__ import annotations

from torch import nn

__all__ = ["Table"]


class Table(nn.Embedding):
    """One vector for each id."""

    def reset_parameters(self) -> None:
        """Draw the vectors, unless there is nothing to draw them into; see ``Linear``."""
        if not self.weight.is_meta:
            super().reset_parameters()
