"""The parts of a static embedder: the engine of a table, and its coverage of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.dataclass import dataclass
from encoder_engine.engine.outputs import Pooled

if TYPE_CHECKING:
    from encoder_engine.embedding.static.model import StaticModel
    from encoder_engine.engine.outputs import Output
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.packing.token_rows import TokenRows

__all__ = ["Coverage", "StaticEngine"]


@dataclass(frozen=True, kw_only=True)
class StaticEngine:
    """The :class:`Engine` of a table: the mean of the rows of a text's tokens."""

    model: StaticModel
    num_threads: int
    name: str = "static"
    device: str = "cpu"
    quantization: str | None = None

    @property
    def dtype(self) -> str:
        """The name of the table's dtype."""
        return self.model.table.dtype

    @property
    def batch_tokens(self) -> int:
        """The most tokens of a batch by default: to add a million rows takes a core 20 ms."""
        return 2**20

    def run(self, rows: TokenRows, *outputs: Output) -> tuple[Vectors, ...]:
        """Average the rows of the table, which is the one output; see :meth:`Engine.run`."""
        (output,) = outputs
        if not isinstance(output, Pooled):
            raise TypeError(f"a table has no output {type(output).__name__}")
        vectors = self.model.table.mean(
            rows.ids,
            rows.cu_seqlens,
            dimension=output.dimension,
            normalized=output.normalized,
            num_threads=self.num_threads,
        )
        return (vectors,)

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
