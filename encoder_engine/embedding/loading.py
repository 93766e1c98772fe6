"""How an embedder was loaded: what another process, or another machine, needs to load the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_engine.embedding.embedder import Embedder


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How an embedder was loaded, so that another process can load the same."""

    path: str
    dtype: str
    quantization: str | None
    pooling: tuple[str, ...] | None
    max_seq_length: int | None
    layers: tuple[tuple[int, float], ...] | None = None

    def load(self, device: str) -> Embedder:
        """Load it once more."""
        from encoder_engine.embedding.embedder import Embedder

        return Embedder.from_pretrained(
            self.path,
            device=device,
            dtype=self.dtype,
            quantization=self.quantization,
            pooling=self.pooling,
            max_seq_length=self.max_seq_length,
            layers=None if self.layers is None else dict(self.layers),
        )
