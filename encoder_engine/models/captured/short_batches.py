"""The short batches that an embedder computes on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.errors import ImplementationError, UnsupportedFeatureError
from encoder_engine.models.captured.encoder import MAX_TOKENS, CapturedEncoder, uses_graphs

if TYPE_CHECKING:
    from encoder_engine.models.encoder import Encoder
    from encoder_engine.models.network import EncoderOutput
    from encoder_engine.packing import PackedBatch

__all__ = ["ShortBatches"]


class ShortBatches:
    """Encodes short batches on a GPU by a :class:`CapturedEncoder`, and leaves all others.

    It leaves all batches once one could not be captured: of changed modules (hooks, adapters), of
    an operation that needs the lengths on the host, or for want of memory. The encoder itself
    computes whatever it leaves.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._captured: CapturedEncoder | None = None
        self._can_capture = True

    def __reduce__(self) -> tuple[type[ShortBatches], tuple[Encoder]]:
        """Copy and pickle without the graphs, which belong to a process."""
        return ShortBatches, (self._encoder,)

    def release(self) -> None:
        """Free the graphs' memory; later batches are captured anew."""
        self._captured = None

    def takes(self, num_tokens: int) -> bool:
        """Return whether a batch of so many tokens is encoded here, if it can be captured."""
        device = self._encoder.device
        return (
            self._can_capture
            and num_tokens <= MAX_TOKENS
            and uses_graphs(device)
            and not torch.is_autocast_enabled(device.type)
        )

    def encode(self, batch: PackedBatch, *, output_pooled: bool = False) -> EncoderOutput | None:
        """Encode a batch on the host without gradients, in evaluation mode; None: it is left."""
        try:
            captured = self._captured or CapturedEncoder(self._encoder)
            output = captured(batch, output_pooled=output_pooled)
        except (ImplementationError, UnsupportedFeatureError, torch.OutOfMemoryError):
            self._captured, self._can_capture = None, False
            return None
        self._captured = captured
        return output
