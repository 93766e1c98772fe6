"""Limits of a batch: the default token budget, and the budget that a device's memory allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["MOST_CPU_TOKENS", "WIDEST_BYTES", "MemoryLimit", "default_batch_tokens"]

# glibc returns freed blocks above 32 MiB to the system, and the next batch faults every page in
# again: BERT-base with 8192 tokens ran 1.4 times as long as with 4096.
WIDEST_BYTES = 24 << 20
# Beyond this a CPU gains nothing: MiniLM in bfloat16 runs as fast with 8192 tokens as with 4096, in
# 90 MiB more.
MOST_CPU_TOKENS = 4096
# Bytes of a number by the name of its dtype.
_ITEM_SIZES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def default_batch_tokens(spec: EncoderSpec, device: str, dtype: str) -> int:
    """Return the default number of tokens per batch on a device, such as ``"cuda:0"``.

    A CUDA device gets 65,536, enough to fill it. A CPU, and any other device, gets at most 4,096,
    and fewer where the widest activation would exceed 24 MiB, the size up to which the CPU's
    allocator reuses memory.
    """
    if device.startswith("cuda"):
        return 65_536
    layers = [block.feed_forward for block in spec.blocks]
    features = max([3 * spec.width, *(n.width * (2 if n.gated else 1) for n in layers)])
    return max(1, min(MOST_CPU_TOKENS, WIDEST_BYTES // (features * _ITEM_SIZES[dtype])))


class MemoryLimit:
    """A token budget, lowered after each batch that exceeds a device's memory."""

    def __init__(self) -> None:
        self._most_tokens: int | None = None

    def cap(self, batch_tokens: int) -> int:
        """Return the smaller of a token budget and this limit."""
        return batch_tokens if self._most_tokens is None else min(batch_tokens, self._most_tokens)

    def lower(self, num_tokens: int) -> None:
        """Lower the limit to half of a batch of ``num_tokens`` that did not fit."""
        self._most_tokens = self.cap(max(1, num_tokens // 2))
