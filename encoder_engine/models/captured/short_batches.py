"""Encodes an embedder's short batches on a GPU by CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine.errors import ImplementationError, UnsupportedFeatureError
from encoder_engine.models.captured.encoder import MAX_TOKENS, CapturedEncoder, uses_graphs
from encoder_engine.models.captured.module_state import ModuleState

if TYPE_CHECKING:
    from encoder_engine.models.encoder import Encoder
    from encoder_engine.models.network import EncoderOutput
    from encoder_engine.packing import PackedBatch

__all__ = ["ShortBatches"]

# In float32 a GPU takes four times as long and more, and padding costs more than the host's time.
MAX_FLOAT32_TOKENS = MAX_TOKENS // 4
# Every failure costs a capture and the graphs that there were.
MOST_FAILURES = 3


class ShortBatches:
    """Encodes short batches on a GPU by a :class:`CapturedEncoder`, and declines all others.

    The caller's encoder computes the others: every batch as long as modules are changed (hooks,
    adapters), a batch that could not be captured, and every batch after the third such failure.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._captured: CapturedEncoder | None = None
        self._refused: ModuleState | None = None
        self._num_failures = 0

    def __reduce__(self) -> tuple[type[ShortBatches], tuple[Encoder]]:
        """Return the state to copy or pickle: without the graphs, which belong to a process."""
        return ShortBatches, (self._encoder,)

    def release(self) -> None:
        """Free the graphs' memory; later batches capture new graphs."""
        self._captured = None

    def takes(self, num_tokens: int) -> bool:
        """Return whether a batch of ``num_tokens`` is short enough to be encoded here."""
        device, dtype, refused = self._encoder.device, self._encoder.dtype, self._refused
        most = MAX_TOKENS if dtype.itemsize <= 2 else MAX_FLOAT32_TOKENS
        return (
            self._num_failures < MOST_FAILURES
            and num_tokens <= most
            and uses_graphs(device)
            and not torch.is_autocast_enabled(device.type)
            and (refused is None or refused.has_changed())
        )

    def encode(self, batch: PackedBatch, *, output_pooled: bool = False) -> EncoderOutput | None:
        """Encode a batch in host memory, without gradients; return None if a graph cannot."""
        try:
            captured = self._captured = self._captured or CapturedEncoder(self._encoder)
            output = captured(batch, output_pooled=output_pooled)
        except (ImplementationError, torch.OutOfMemoryError):
            # No memory, an operation that needs the lengths on the host, another capture.
            self.release()
            self._num_failures += 1
            return None
        except UnsupportedFeatureError:
            self.release()
            self._refused = ModuleState(self._encoder)
            return None
        self._refused = None
        return output
