"""The settings of a service: batches, limits and timeouts."""

from __future__ import annotations

from typing import Literal

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

__all__ = ["ServingOptions"]

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """The settings of a :class:`~encoder_engine.serving.service.Service`.

    batch_ms: the time that one client's texts in a batch may take, in milliseconds; a single text
        beside a large request waits for at most one batch.
    lanes: threads that compute, each with an equal share of the model's threads.
    max_texts: the most texts of a request.
    max_requests: the most requests that wait or are computed; further requests are refused. Allow
        twice as many connections, so that a refused client can keep its connection.
    max_queue_tokens: the most tokens of a request together with those that are computed before its
        last text; None: the number of tokens that are computed in 10 seconds.
    max_queue_bytes: the most bytes of texts of all requests together.
    max_answer_bytes: the most bytes of results of all requests together.
    timeout: seconds after which a request is abandoned, unless it states another deadline.
    accept_token_ids: requests may hold token ids instead of texts. They must come from the model's
        own tokenizer, with its special tokens: ids of another tokenizer give wrong vectors that
        look plausible.
    truncation: ``"cut"`` shortens texts beyond a model's limit, ``"refuse"`` refuses them.
    drain_delay: seconds during which a server that is shutting down reports that it is not ready,
        and still accepts connections.
    drain_timeout: seconds for computing the accepted requests during shutdown.

    Raises :class:`InputError` for values out of range.
    """

    batch_ms: float = 20.0
    lanes: int = 1
    max_texts: int = 2048
    max_requests: int = 2048
    max_queue_tokens: int | None = None
    max_queue_bytes: int = 256 * MIB
    max_answer_bytes: int = 256 * MIB
    timeout: float = 60.0
    accept_token_ids: bool = False
    truncation: Literal["cut", "refuse"] = "cut"
    drain_delay: float = 0.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        most = ("max_texts", "max_requests", "max_queue_tokens", "max_queue_bytes")
        for name in ("batch_ms", "lanes", *most, "max_answer_bytes", "timeout", "drain_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} must be greater than 0, got {value!r}")
        if self.drain_delay < 0:
            raise InputError(f"drain_delay must be at least 0, got {self.drain_delay!r}")
        if self.truncation not in ("cut", "refuse"):
            raise InputError(f"truncation must be 'cut' or 'refuse', got {self.truncation!r}")
