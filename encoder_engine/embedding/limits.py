"""Limits of a batch: the default token budget, and what a device's memory turned out to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["MOST_CPU_TOKENS", "WIDEST_BYTES", "MemoryLimit", "default_batch_tokens"]

# What is larger than 32 MiB, glibc gives back to the system when it is freed, and every batch then
# takes its pages one by one: BERT-base with 8192 tokens ran 1.4 times as long as with 4096.
WIDEST_BYTES = 24 << 20
# Beyond this a CPU gains nothing: MiniLM in bfloat16 runs as fast with 8192 tokens as with 4096, in
# 90 MiB more.
MOST_CPU_TOKENS = 4096


def default_batch_tokens(spec: EncoderSpec, device: torch.device, dtype: torch.dtype) -> int:
    """Return the number of tokens per batch.

    On a CPU as many as keep the widest activation in memory that is used again and again; a GPU
    runs fastest when it is full.
    """
    if device.type == "cuda":
        return 65_536
    layers = [block.feed_forward for block in spec.blocks]
    features = max([3 * spec.width, *(n.width * (2 if n.gated else 1) for n in layers)])
    return max(1, min(MOST_CPU_TOKENS, WIDEST_BYTES // (features * dtype.itemsize)))


class MemoryLimit:
    """What a device taught whose memory ran out: batches that did not fit are not tried again."""

    def __init__(self) -> None:
        self._most_tokens: int | None = None

    def cap(self, batch_tokens: int) -> int:
        """Return a token budget, or as much of it as may fit."""
        return batch_tokens if self._most_tokens is None else min(batch_tokens, self._most_tokens)

    def lower(self, num_tokens: int) -> None:
        """Take note that a batch of so many tokens did not fit: half of it may."""
        self._most_tokens = self.cap(max(1, num_tokens // 2))
