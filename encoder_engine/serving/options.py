"""The settings of a service: batches, limits, time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from encoder_engine.errors import InputError

__all__ = ["ServingOptions"]

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """The settings of a :class:`~encoder_engine.serving.service.Service`.

    batch_ms: the time that a batch may take, in milliseconds; a lone text behind a large request
        waits for one batch.
    lanes: threads that compute, each with an equal share of the model's threads.
    max_texts: the most texts of a request.
    max_queue_tokens: the most tokens that wait; None: as many as 10 seconds compute.
    max_queue_bytes: the most bytes of texts that wait.
    max_answer_bytes: the most bytes of results of all requests together.
    timeout: seconds until a request that has no other deadline is given up.
    accept_token_ids: requests may hold token ids instead of texts, those of the model's own
        tokenizer with its special tokens: another one's give plausible, wrong vectors.
    truncation: ``"cut"`` shortens texts beyond a model's limit, ``"refuse"`` refuses them.
    drain_delay: seconds from the end's announcement to the refusal of new connections.
    drain_timeout: seconds in which a service that ends computes what it accepted.

    Raises :class:`InputError` for values out of range.
    """

    batch_ms: float = 20.0
    lanes: int = 1
    max_texts: int = 2048
    max_queue_tokens: int | None = None
    max_queue_bytes: int = 256 * MIB
    max_answer_bytes: int = 256 * MIB
    timeout: float = 60.0
    accept_token_ids: bool = False
    truncation: Literal["cut", "refuse"] = "cut"
    drain_delay: float = 0.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        positive = ("batch_ms", "lanes", "max_texts", "max_queue_tokens", "max_queue_bytes")
        for name in (*positive, "max_answer_bytes", "timeout", "drain_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be greater than 0, got {value!r}")
        if self.drain_delay < 0:
            raise InputError(f"drain_delay must be at least 0, got {self.drain_delay!r}")
        if self.truncation not in ("cut", "refuse"):
            raise InputError(f"truncation must be 'cut' or 'refuse', got {self.truncation!r}")
