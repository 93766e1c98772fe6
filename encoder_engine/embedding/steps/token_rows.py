"""Tokenized texts as packed rows of ids, and their batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.steps.batching import plan_batches, take
from encoder_engine.packing import PackedBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from encoder_engine.text import Encoding

__all__ = ["TokenRows"]

IdArray = np.ndarray[Any, np.dtype[np.int32]]
RowArray = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenRows:
    """Packed rows: ``ids`` and ``type_ids`` int32 [T], ``cu_seqlens`` int32 [N + 1]."""

    ids: IdArray
    cu_seqlens: IdArray
    type_ids: IdArray

    @classmethod
    def of(cls, encoding: Encoding) -> Self:
        """Take the rows of a tokenizer's result."""
        return cls(ids=encoding.ids, cu_seqlens=encoding.cu_seqlens, type_ids=encoding.type_ids)

    @property
    def lengths(self) -> IdArray:
        """Tokens of each row, int32 [N]."""
        return self.cu_seqlens[1:] - self.cu_seqlens[:-1]

    @property
    def has_types(self) -> bool:
        """True where any token has a segment other than 0."""
        return bool(self.type_ids.any())

    def batches(
        self, batch_tokens: int, device: torch.device
    ) -> Iterator[tuple[RowArray, PackedBatch]]:
        """Yield all rows in batches of at most ``batch_tokens`` tokens, the longest rows first."""
        typed = self.has_types
        for rows in plan_batches(self.lengths, batch_tokens):
            ids, cu_seqlens = take(self.ids, self.cu_seqlens, rows)
            types = take(self.type_ids, self.cu_seqlens, rows)[0] if typed else None
            batch = PackedBatch.from_numpy(
                input_ids=ids, cu_seqlens=cu_seqlens, token_type_ids=types, device=device
            )
            yield rows, batch
