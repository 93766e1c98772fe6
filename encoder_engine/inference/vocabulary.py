"""The output layer of a causal model: computes logits of a few tokens, and log-probabilities.

How it works: the vocabulary is packed in pieces of 8,192 tokens. For 512 rows at a time, the logits
of one piece are computed, 16 MiB in float32, added to each row's running softmax, and dropped
before those of the next piece. The logits [M, V] are never in memory as a whole.

Dimensions: M rows, D width, V vocabulary, K chosen tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine import _native
from encoder_engine.families.checkpoints.arrays import BFLOAT16, cast, dtype_name, widen
from encoder_engine.inference.layers import pack
from encoder_engine.inference.memory import address
from encoder_engine.inference.rows import project_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.inference.layers import Dense

__all__ = ["Vocabulary"]

PIECE_TOKENS = 8192
CHUNK_ROWS = 512


class Vocabulary:
    """The output layer of a causal model.

    weight_VD: float32 or bfloat16.
    softcap: logits become ``softcap * tanh(logit / softcap)`` (Gemma 2); None: no cap.
    """

    def __init__(self, weight_VD: Array, *, softcap: float | None = None) -> None:
        self.weight = weight_VD
        self.softcap = softcap
        self._pieces: list[Dense] = []

    def logits(
        self, rows_MD: npt.NDArray[np.float32], token_ids: list[int], *, num_threads: int
    ) -> npt.NDArray[np.float32]:
        """Return the logits of the tokens ``token_ids`` for each row, float32 [M, K]."""
        chosen = pack(np.ascontiguousarray(self.weight[token_ids]), None)
        rows = cast(rows_MD, dtype_name(self.weight.dtype))
        return self._capped(widen(project_rows(rows, chosen, num_threads=num_threads)))

    def log_probabilities(
        self,
        rows_MD: npt.NDArray[np.float32],
        targets_M: npt.NDArray[np.int32],
        *,
        num_threads: int,
    ) -> npt.NDArray[np.float32]:
        """Return the log-probability of each row's target token, float32 [M]."""
        if not self._pieces:
            parts = range(0, len(self.weight), PIECE_TOKENS)
            self._pieces = [pack(self.weight[at : at + PIECE_TOKENS], None) for at in parts]
        found = np.empty(len(rows_MD), dtype=np.float32)
        for first in range(0, len(rows_MD), CHUNK_ROWS):
            chunk = slice(first, first + CHUNK_ROWS)
            rows = cast(rows_MD[chunk], dtype_name(self.weight.dtype))
            found[chunk] = self._of_chunk(rows, targets_M[chunk], num_threads)
        return found

    def _of_chunk(
        self, rows_MD: Array, targets_M: npt.NDArray[np.int32], num_threads: int
    ) -> npt.NDArray[np.float32]:
        count = len(rows_MD)
        largest = np.full(count, -np.inf, dtype=np.float32)
        sums = np.zeros(count, dtype=np.float32)
        of_targets = np.zeros(count, dtype=np.float32)
        for number, piece in enumerate(self._pieces):
            logits: Any = project_rows(rows_MD, piece, num_threads=num_threads)
            if self.softcap is not None:
                logits = cast(self._capped(widen(logits)), dtype_name(logits.dtype))
            _native.add_softmax_sums(
                *(logits.dtype == BFLOAT16, address(logits), address(largest), address(sums)),
                *(count, piece.width, num_threads),
            )
            places = targets_M - number * PIECE_TOKENS
            here = np.flatnonzero((places >= 0) & (places < piece.width))
            of_targets[here] = widen(logits[here, places[here]])
        found: npt.NDArray[np.float32] = of_targets - largest - np.log(sums)
        return found

    def _capped(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self.softcap is None:
            return logits
        capped: npt.NDArray[np.float32] = np.tanh(logits / self.softcap) * self.softcap
        return capped
