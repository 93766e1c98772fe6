"""Layouts of packed batches with fixed shapes, as CUDA graphs need: one for each bucket.

How it works: a graph repeats its kernels with the grids and addresses of its capture. A bucket
limits the tokens, the sequences and the longest sequence of a batch, and its layout has the shapes
of the largest one. Rows after the batch's belong to no sequence. Sequences after the batch's are
empty, and so is one more, which always exists: it owns the tiles after the batch's own, and kernels
exit these at once. Values that depend on the lengths are computed from ``cu_seqlens`` on its
device, so that a graph repeats their computation too.

Dimensions: T rows, B sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from encoder_engine.errors import BatchError, ImplementationError
from encoder_engine.packing.batch import PackedBatch
from encoder_engine.packing.sequences import Sequences

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from encoder_engine.packing.batch import Limits

__all__ = [
    "Bucket",
    "BucketBatch",
    "BucketSequences",
    "FilledSequences",
    "power_of_two",
    "size_class",
]

# Kernels compute at least so many rows, and shorter sequences have the same launch shapes.
LEAST_ROWS = 64


class Bucket(NamedTuple):
    """The most tokens, sequences, and tokens per sequence of a batch; powers of two."""

    num_tokens: int
    num_sequences: int
    max_seqlen: int

    @classmethod
    def of(cls, sequences: Sequences) -> Bucket:
        """Return the smallest bucket that a batch fits into."""
        return cls(
            num_tokens=power_of_two(sequences.num_tokens, LEAST_ROWS),
            num_sequences=power_of_two(len(sequences), 1),
            max_seqlen=power_of_two(sequences.max_seqlen, LEAST_ROWS),
        )

    @property
    def num_offsets(self) -> int:
        """The length of ``cu_seqlens``: B + 2, since one more, empty sequence follows the B."""
        return self.num_sequences + 2

    def num_tiles(self, block: int) -> int:
        """Return the most tiles that a batch in the bucket can have, each of ``block`` rows."""
        by_tokens = self.num_tokens // block + self.num_sequences
        return min(by_tokens, self.num_sequences * -(-self.max_seqlen // block))

    def write_offsets(self, sequences: Sequences, out: npt.NDArray[np.int32]) -> None:
        """Write the offsets of a batch and of the empty sequences after it, int32 [B + 2].

        Raises :class:`BatchError` where the batch does not fit.
        """
        found = (sequences.num_tokens, len(sequences), sequences.max_seqlen)
        if any(has > most for has, most in zip(found, self, strict=True)):
            raise BatchError(
                f"a batch of {found[0]} tokens in {found[1]} sequences of at most {found[2]} does "
                f"not fit into {self}; Bucket.of(sequences) is one that fits"
            )
        out[: len(sequences) + 1] = sequences.offsets
        out[len(sequences) + 1 :] = sequences.num_tokens


def size_class(number: int, unit: int = LEAST_ROWS) -> tuple[int, int]:
    """Round a number up to a multiple of a step; return the result and the step.

    The step is a sixteenth of the number's next power of two, and at least ``unit``. These few
    sizes waste at most an eighth of a number that is above 8 units.
    """
    step = max(unit, power_of_two(number, unit) // 16)
    return max(-(-number // step), 1) * step, step


def power_of_two(number: int, least: int) -> int:
    """Return the least power of two that is neither below ``number`` nor below ``least``."""
    return max(least, 1 << max(number - 1, 0).bit_length())


class BucketSequences(Sequences):
    """The B + 1 sequences of a bucket; a batch occupies the first of them.

    :meth:`from_offsets` makes an object. Rows after the batch's have the number of the last
    sequence and position 0. Only on a CPU the host has the lengths; implementations that read these
    compute the rows after the batch's as one more sequence, whose results are not read.
    """

    @classmethod
    def from_offsets(cls, cu_seqlens: Tensor, bucket: Bucket) -> Self:
        """Make the layout of a bucket from offsets, int32 [B + 2], which are not checked."""
        host_offsets = torch.empty(0, dtype=torch.int64)
        if cu_seqlens.device.type == "cpu":
            host_offsets = cu_seqlens.long()
            host_offsets[-1] = bucket.num_tokens
        sequences = cls._of_parts(cu_seqlens, host_offsets, bucket.num_tokens)
        sequences._memory.update(max_seqlen=bucket.max_seqlen, bucket=bucket)
        return sequences

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offsets on the host, for a CPU.

        Raises :class:`ImplementationError` for another device.
        """
        if self.device.type != "cpu":
            raise ImplementationError(
                "this implementation reads the lengths on the host, which a CUDA graph does not "
                "have; request another one, or call the encoder itself"
            )
        return super().offsets

    @property
    def common_length(self) -> int:
        """Return 0, which means that lengths differ: a graph must compute any lengths."""
        return 0

    def _make_sequence_ids(self) -> Tensor:
        return super()._make_sequence_ids().clamp_(max=len(self) - 1)

    def _make_positions(self) -> Tensor:
        rows = torch.arange(self.num_tokens, device=self.device)
        return (rows - self.cu_seqlens[self.sequence_ids]).masked_fill_(self._is_padding, 0)

    def zero_padding_rows(self, rows_T: Tensor) -> Tensor:
        """Write zeros to the rows after the batch's, in place; return all rows.

        Attention leaves these rows unwritten. A product whose features are no multiple of its block
        may multiply the start of the next row by zeros, and 0 x NaN is NaN.
        """
        padding = self._is_padding.view(-1, *(1,) * (rows_T.dim() - 1))
        return rows_T.masked_fill_(padding, 0.0)

    @property
    def _is_padding(self) -> Tensor:
        return self._remember("is padding", lambda: self.sequence_ids == len(self) - 1)

    def tiles(self, block: int) -> Tensor:
        """Return the bucket's n blocks of rows: int32 [n, 2], (sequence, block), longest first.

        Blocks after the batch's are block 0 of the last sequence, which is empty.
        """
        return self._remember(f"tiles {block}", lambda: self._make_tiles(block))

    def _make_tiles(self, block: int) -> Tensor:
        bucket: Bucket = self._memory["bucket"]
        lengths, order = self._remember("longest first", self._sort)
        counts = (lengths + (block - 1)) // block
        ends = counts.cumsum(0)
        tiles = torch.arange(bucket.num_tiles(block), device=self.device)
        places = torch.searchsorted(ends, tiles, right=True)
        beyond = places == len(self)
        places = places.clamp_(max=len(self) - 1)
        blocks = (tiles - (ends - counts)[places]).masked_fill_(beyond, 0)
        return torch.stack([order[places], blocks], dim=1).to(torch.int32)

    def _sort(self) -> tuple[Tensor, Tensor]:
        """Return the lengths, longest first, and their sequences; the empty last one stays last."""
        lengths, order = torch.sort(self.cu_seqlens.diff(), descending=True, stable=True)
        return lengths, order


class FilledSequences(BucketSequences):
    """The B + 1 sequences of a bucket, which cover all of its rows; only the last one is empty.

    For training, where sequences that no loss reads follow the batch's: attention leaves rows
    without a sequence unwritten, and their gradients would reach the weights.
    """

    @property
    def firsts(self) -> tuple[Tensor, FilledSequences]:
        """The first rows of the B sequences, int64 [B], and these rows as sequences of one row."""
        number = len(self) - 1
        ends = torch.arange(number + 2, dtype=torch.int32, device=self.device)
        bucket = Bucket(num_tokens=number, num_sequences=number, max_seqlen=1)
        within = FilledSequences.from_offsets(ends.clamp_(max=number), bucket)
        return self.cu_seqlens[:number].long(), within

    def zero_padding_rows(self, rows_T: Tensor) -> Tensor:
        """Return the rows unchanged: there are no rows without a sequence."""
        return rows_T


class BucketBatch(PackedBatch):
    """A batch in the layout of a bucket, whose values were checked before it was copied."""

    def checked(self, limits: Limits) -> Self:  # noqa: ARG002
        """Return this batch unchanged: a check would wait for the device."""
        return self
