"""Rooms for bodies are given back, whoever goes away in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from encoder_engine.serving.http.guard import BodyReader, Limits

HEADERS = {b"content-length": b"100"}


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * 100}


def test_a_body_whose_request_is_cancelled_as_room_comes_free_keeps_no_room() -> None:
    async def run() -> None:
        reader = BodyReader(Limits(max_body_bytes=100, max_bodies_bytes=100))

        async def read() -> bytes:
            reserved = await reader.reserve(HEADERS)
            try:
                return await reader.read(receive)
            finally:
                reader.release(reserved)

        first = await reader.reserve(HEADERS)
        cancelled, next_one = asyncio.create_task(read()), asyncio.create_task(read())
        await asyncio.sleep(0)
        # The cancelled request runs only in the next pass of the loop.
        cancelled.cancel()
        reader.release(first)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert len(await next_one) == 100
        assert len(await asyncio.wait_for(read(), 5.0)) == 100

    asyncio.run(run())
