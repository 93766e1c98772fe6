"""The input of a training step's micro-batch, padded to fixed sizes, for CUDA graphs.

How it works: tokens, sequences, selected rows and targets are each padded to a size class. Padding
sequences, of token 0, follow the batch's own and divide the remaining rows among them. Padding of
the selected rows takes the first of the remaining rows. Padding targets have no loss
(:class:`Padding`). No loss reads padding, so its gradients are exactly 0, and to the kernels it is
ordinary tokens. All inputs lie in one block of memory, so that one copy fills it.

Dimensions: T rows, B sequences and M selected rows of a layout; T', B' and M' of the batch.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from encoder_engine.models.training_model import Inputs
from encoder_engine.packing.bucket import (
    LEAST_ROWS,
    Bucket,
    BucketBatch,
    FilledSequences,
    power_of_two,
    size_class,
)
from encoder_engine.packing.selection import assemble_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models.training_model import Padding

__all__ = ["StepInputs", "StepLayout"]

# Every part of the memory begins at a multiple of so many bytes.
ALIGNMENT = 16
# The number of sequences is rounded up to a multiple of it; see size_class for more than 128.
LEAST_SEQUENCES = 8


class TargetLayout(NamedTuple):
    """The shape and dtype of a target, and the value that pads it; see :class:`Padding`."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    value: float


class StepLayout(NamedTuple):
    """The sizes of a micro-batch's buffers; micro-batches of one layout share a CUDA graph.

    ``bucket``: the numbers of tokens and sequences. ``rows``: the number of selected rows; None:
    all rows are read.
    """

    bucket: Bucket
    rows: Bucket | None
    has_types: bool
    targets: tuple[TargetLayout, ...]
    num_losses: int

    @classmethod
    def of(
        cls,
        inputs: Inputs,
        paddings: Mapping[str, Padding],
        *,
        longest: int | None,
        num_losses: int,
    ) -> StepLayout | None:
        """Return the layout in which a CUDA graph computes a micro-batch in host memory.

        None: no layout can hold the micro-batch.
        longest: the most tokens of a sequence that the model supports.
        """
        sequences, rows = inputs.batch.sequences, inputs.rows
        if inputs.batch.position_ids is not None or inputs.gradient is not None:
            return None
        # Sequences without a token have no first row.
        if not len(sequences) or not sequences.lengths.all():
            return None
        num_rows, further = (0, 0) if rows is None else size_class(len(rows))
        # The least rows of padding: each padding sequence and each padding selected row needs one.
        further = max(further, LEAST_ROWS, 2 * size_class(len(sequences), 1)[1])
        num_tokens = size_class(sequences.num_tokens)[0] + further
        max_seqlen = power_of_two(sequences.max_seqlen, LEAST_ROWS)
        most = max_seqlen if longest is None else min(longest, max_seqlen)
        fillers = -(-(num_tokens - sequences.num_tokens) // most)
        num_sequences, _ = size_class(len(sequences) + fillers, LEAST_SEQUENCES)
        if num_sequences - len(sequences) > num_tokens - sequences.num_tokens:
            return None
        bucket = Bucket(num_tokens, num_sequences, max_seqlen)
        selected = None
        if rows is not None:
            # All padding selected rows may lie in one of the padding sequences.
            counts = max(int(rows.within.lengths.max(initial=0)), min(further, most))
            selected = Bucket(num_rows, num_sequences, power_of_two(counts, LEAST_ROWS))
        targets = tuple(
            _target_layout(name, inputs.targets[name], padding, num_sequences + 1)
            for name, padding in paddings.items()
        )
        has_types = inputs.batch.token_type_ids is not None
        return cls(bucket, selected, has_types, targets, num_losses)


def _target_layout(name: str, target: Tensor, padding: Padding, num_sequences: int) -> TargetLayout:
    length = len(target)
    if padding.value is not None:
        length = num_sequences if padding.by_sequence else size_class(length)[0]
    return TargetLayout(name, (length, *target.shape[1:]), target.dtype, padding.value or 0.0)


class StepInputs:
    """The buffers for the inputs of one layout on a device, at fixed addresses.

    ``scales``: the factor of each summed loss, [losses], in ``loss_dtype``.
    """

    def __init__(
        self, layout: StepLayout, device: torch.device, *, loss_dtype: torch.dtype
    ) -> None:
        self.layout = layout
        bucket, rows = layout.bucket, layout.rows
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "scales": ((layout.num_losses,), loss_dtype),
            "ids": ((bucket.num_tokens,), torch.int32),
            "offsets": ((bucket.num_offsets,), torch.int32),
        }
        if layout.has_types:
            shapes["types"] = ((bucket.num_tokens,), torch.int32)
        if rows is not None:
            shapes["rows"] = ((rows.num_tokens,), torch.int64)
            shapes["places"] = ((rows.num_tokens,), torch.int32)
            shapes["row_offsets"] = ((rows.num_offsets,), torch.int32)
        shapes |= {f"target {t.name}": (t.shape, t.dtype) for t in layout.targets}
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in shapes.values()]
        ends = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
        self._parts = {
            name: (start, size, shape, dtype)
            for (name, (shape, dtype)), start, size in zip(
                shapes.items(), ends[:-1], sizes, strict=True
            )
        }
        self._memory = torch.zeros(ends[-1], dtype=torch.uint8, device=device)
        self._views = self._view(self._memory)

    @property
    def scales(self) -> Tensor:
        """The factor on each summed loss, [losses]."""
        return self._views["scales"]

    def _view(self, memory: Tensor) -> dict[str, Tensor]:
        return {
            name: memory[start : start + size].view(dtype).view(shape)
            for name, (start, size, shape, dtype) in self._parts.items()
        }

    def fill(self, inputs: Inputs, scales: list[float]) -> None:
        """Copy a micro-batch of this layout from host memory, without waiting for the device."""
        pinned = self._memory.is_cuda
        # New for every call: the allocator keeps pinned memory until the device has read it.
        staged = torch.zeros(self._memory.shape, dtype=torch.uint8, pin_memory=pinned)
        views = {name: view.numpy() for name, view in self._view(staged).items()}
        views["scales"][:] = scales
        batch, sequences = inputs.batch, inputs.batch.sequences
        views["ids"][: batch.num_tokens] = batch.input_ids.numpy()
        if batch.token_type_ids is not None:
            views["types"][: batch.num_tokens] = batch.token_type_ids.numpy()
        self._write_offsets(sequences.offsets, views["offsets"])
        if inputs.rows is not None:
            self._write_rows(inputs.rows.indices, batch.num_tokens, views)
        for target in self.layout.targets:
            values = inputs.targets[target.name].numpy()
            view = views[f"target {target.name}"]
            view[: len(values)] = values
            view[len(values) :] = target.value
        self._memory.copy_(staged, non_blocking=True)

    def _write_offsets(self, own: npt.NDArray[np.int64], offsets: npt.NDArray[Any]) -> None:
        """Write the offsets of the batch's sequences, then of sequences over the padding."""
        number = self.layout.bucket.num_sequences - (len(own) - 1)
        further = self.layout.bucket.num_tokens - int(own[-1])
        offsets[: len(own)] = own
        offsets[len(own) - 1 : -1] = own[-1] + np.arange(number + 1) * further // number
        offsets[-1] = self.layout.bucket.num_tokens

    def _write_rows(
        self, own: npt.NDArray[np.int64], num_tokens: int, views: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        """Write the indices of the batch's selected rows, then those of padding rows."""
        offsets, rows = views["offsets"], views["rows"]
        rows[: len(own)] = own
        rows[len(own) :] = num_tokens + np.arange(len(rows) - len(own))
        owners = np.searchsorted(offsets, rows, side="right") - 1
        views["places"][:] = rows - offsets[owners]
        views["row_offsets"][:] = np.searchsorted(rows, offsets)

    def inputs(self) -> Inputs:
        """Return the buffers as a model's inputs; derived values are computed anew at each call."""
        layout, views = self.layout, self._views
        sequences = FilledSequences.from_offsets(views["offsets"], layout.bucket)
        batch = BucketBatch(
            input_ids=views["ids"], sequences=sequences, token_type_ids=views.get("types")
        )
        rows = None
        if layout.rows is not None:
            within = FilledSequences.from_offsets(views["row_offsets"], layout.rows)
            rows = assemble_rows(views["rows"], sequences, within, views["places"])
        targets = {target.name: views[f"target {target.name}"] for target in layout.targets}
        return Inputs(batch, targets, rows)
