"""Tables of learned vectors."""

from __future__ import annotations

from torch import nn

__all__ = ["Table"]


class Table(nn.Embedding):
    """A table of one learned vector for each id."""

    def reset_parameters(self) -> None:
        """Draw the vectors, unless they are on the meta device."""
        if not self.weight.is_meta:
            super().reset_parameters()
