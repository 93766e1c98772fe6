"""The answers to requests, as bytes of JSON.

A vector of 384 float32 takes orjson 12 us and ``json.dumps`` 440 us. Long answers are written 32
vectors at a time (0.5 ms), and other requests are read in between.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from encoder_engine.serving.request import Answer

__all__ = ["Reply", "dump", "dump_each", "embedding_items", "reply_of"]

VECTORS_A_TURN = 32


class Reply(NamedTuple):
    """A body with its headers."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"
    status: int = 200


def dump(value: Any) -> bytes:
    """Write a value as JSON; float32 arrays get the shortest digits that give the same number."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


async def dump_each(count: int, make: Callable[[int, int], Sequence[Any]]) -> bytes:
    """Write the list of ``make(start, stop)``, piece by piece."""
    parts = []
    for start in range(0, count, VECTORS_A_TURN):
        if start:
            await asyncio.sleep(0)
        parts.append(dump(make(start, min(start + VECTORS_A_TURN, count)))[1:-1])
    return b"[" + b",".join(parts) + b"]"


async def embedding_items(vectors: Any, *, encoded: bool) -> bytes:
    """Write OpenAI's list of embeddings; ``encoded``: base64 of little-endian float32."""

    def make(start: int, stop: int) -> list[dict[str, Any]]:
        return [
            {
                "object": "embedding",
                "index": row,
                "embedding": _base64(vectors[row]) if encoded else vectors[row],
            }
            for row in range(start, stop)
        ]

    return await dump_each(len(vectors), make)


def _base64(vector: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


def reply_of(body: bytes, answer: Answer) -> Reply:
    """Return a body with the headers that TEI's answers have, and the texts that were cut."""
    milliseconds = {name: round(1000 * seconds) for name, seconds in answer.seconds.items()}
    headers = [
        (b"x-compute-tokens", str(answer.num_tokens).encode()),
        (b"x-total-time", str(sum(milliseconds.values())).encode()),
        (b"x-tokenization-time", str(milliseconds["tokenize"]).encode()),
        (b"x-queue-time", str(milliseconds["queue"]).encode()),
        (b"x-inference-time", str(milliseconds["compute"]).encode()),
    ]
    if answer.truncated:
        numbers = ",".join(map(str, answer.truncated[:1000]))
        headers.append((b"x-truncated", numbers.encode()))
    return Reply(body, tuple(headers))
