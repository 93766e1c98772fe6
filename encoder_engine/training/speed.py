"""Measures the speed of training between logged steps, and counts the FLOPs of a token."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from encoder_engine.models import Encoder

__all__ = ["SpeedMeter", "flops_per_token"]


class SpeedMeter:
    """Measures the time since the last logged step, and counts the tokens of the steps since then.

    utilisation: the share of the devices' peak FLOP/s that one token per second takes; None: the
    utilisation is not logged.
    """

    def __init__(self, tokens: int, *, utilisation: float | None) -> None:
        self._utilisation = utilisation
        self.restart(tokens)

    def restart(self, tokens: int) -> None:
        """Measure from now on; ``tokens``: the tokens of the run so far, which are not counted."""
        self._began, self._waited, self._since = time.perf_counter(), 0.0, tokens

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time within this context as time spent waiting for data."""
        requested = time.perf_counter()
        yield
        self._waited += time.perf_counter() - requested

    def read(self, tokens: int) -> dict[str, float]:
        """Return the speeds since :meth:`restart`; ``tokens``: the tokens of the run so far.

        The names are those of ``speed.jsonl``.
        """
        seconds = max(time.perf_counter() - self._began, 1e-9)
        speed = {
            "seconds": seconds,
            "tokens_per_second": (tokens - self._since) / seconds,
            "data_wait": self._waited / seconds,
        }
        if self._utilisation is not None:
            speed["utilisation"] = speed["tokens_per_second"] * self._utilisation
        return speed


def flops_per_token(encoders: Sequence[Encoder], length: int) -> float:
    """Return the FLOPs of a token's forward and backward pass (Chowdhery et al. 2022).

    The blocks' matrix products and attention over sequences of ``length`` tokens are counted: the
    forward pass once, the backward pass twice. Heads and embedding tables are not counted. Rows
    that the last block skips are not subtracted.
    """
    total = 0.0
    for encoder in encoders:
        order = encoder.spec.order or range(len(encoder.spec.blocks))
        for index in order:
            attention = encoder.spec.blocks[index].attention
            matrices = sum(p.numel() for p in encoder.blocks[index].parameters() if p.dim() == 2)
            seen = length if attention.window is None else min(length, 2 * attention.window + 1)
            total += 2.0 * matrices + 4.0 * seen * attention.num_heads * attention.head_dim
    return 3.0 * total
