"""A batch of training text, before training objectives mask or change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import BatchError

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]

__all__ = ["CleanBatch"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CleanBatch:
    """B sequences of T tokens, concatenated, with the marks that training objectives read.

    ``input_ids`` int32 [T]: the tokens.
    ``cu_seqlens`` int32 [B + 1]: the offsets of the sequences.
    ``numbers`` int64 [B]: the index of each sequence in its ``epoch``, by which masks are drawn.
    ``special`` bool [T]: special tokens, which are never masked.
    ``word_starts`` bool [T]: first tokens of words, and special tokens.
    ``token_type_ids`` int32 [T]: the segment of each token; None without pairs.
    ``salient`` uint8 [T]: 1 for the first token of a salient span, 2 for its others, else 0; None:
    spans are not marked.
    ``positive`` bool [B]: whether each pair is consecutive; None without pairs.

    Raises :class:`BatchError` for arrays whose sizes or dtypes contradict each other, and for a
    sequence that begins within a word.
    """

    input_ids: npt.NDArray[np.int32]
    cu_seqlens: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int64]
    special: Bools
    word_starts: Bools
    epoch: int = 0
    token_type_ids: npt.NDArray[np.int32] | None = None
    positive: Bools | None = None
    salient: npt.NDArray[np.uint8] | None = None

    def __post_init__(self) -> None:
        offsets = self.cu_seqlens
        if not len(offsets) or offsets[0] != 0 or bool((np.diff(offsets) < 0).any()):
            raise BatchError("cu_seqlens must begin with 0 and never fall")
        num_tokens, num_sequences = int(offsets[-1]), len(offsets) - 1
        expected: dict[str, tuple[Any, int]] = {
            "input_ids": (np.int32, num_tokens),
            "special": (np.bool_, num_tokens),
            "word_starts": (np.bool_, num_tokens),
            "token_type_ids": (np.int32, num_tokens),
            "salient": (np.uint8, num_tokens),
            "numbers": (np.int64, num_sequences),
            "positive": (np.bool_, num_sequences),
        }
        for name, (dtype, length) in expected.items():
            array = getattr(self, name)
            if array is None:
                continue
            if array.dtype != dtype or array.shape != (length,):
                raise BatchError(
                    f"{name} must be {np.dtype(dtype)} [{length}], got {array.dtype} "
                    f"{list(array.shape)}; cu_seqlens has {num_sequences} sequences of "
                    f"{num_tokens} tokens"
                )
        filled = np.flatnonzero(np.diff(offsets))
        begun = self.word_starts[offsets[filled]]
        if not bool(begun.all()):
            row = int(filled[~begun][0])
            raise BatchError(f"sequence {row} begins within a word; mark its first token", row=row)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of tokens of each sequence, [B]."""
        return np.diff(self.cu_seqlens).astype(np.int64)

    @property
    def sequence_ids(self) -> npt.NDArray[np.int64]:
        """The index of each token's sequence, [T]."""
        return np.repeat(np.arange(len(self.numbers), dtype=np.int64), self.lengths)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """The position of each token in its sequence, [T]."""
        return np.arange(len(self.input_ids), dtype=np.int64) - self.cu_seqlens[self.sequence_ids]
