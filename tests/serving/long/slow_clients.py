"""Keeps many slow connections open beside a client that must not notice them.

``python -m tests.serving.long.slow_clients --connections 1000 --seconds 60``, as slowhttptest does:
a third of the connections send their headers byte by byte (Slowloris), a third their body, and a
third ask for a large answer and read it byte by byte. One that the server drops is opened again.
Prints the other client's latencies without and beside them, and how many were dropped; its answers
must all be right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.embedding.tiny_model import write_sentence_directory
from tests.serving.long.mutations import BODY, HEAD, JSON, gauges, served

# Seconds between the bytes of a slow client.
PAUSE = 1.0
# Connections that begin in a second. What a third of them ask for takes the server time: together
# their texts are a queue of ten seconds on two busy cores, for which a server refuses any request.
BEGIN = 50
LARGE = json.dumps({"inputs": ["the row " * 9] * 400}).encode()
LARGE_HEAD = HEAD.replace(b"/embed", b"/embed_all").replace(
    b"length: %d" % len(BODY), b"length: %d" % len(LARGE)
)


class SlowClients:
    """Slow connections to an address; ``dropped`` counts those that the server ended."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.dropped = 0

    async def run(self, number: int) -> None:
        """Be slow, in one of three ways, until cancelled."""
        await asyncio.sleep(number / BEGIN)
        way = (self._send_headers, self._send_body, self._read)[number % 3]
        while True:
            with suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(
                    self._parts.hostname, self._parts.port, limit=1024
                )
                try:
                    await way(reader, writer)
                finally:
                    writer.close()
            self.dropped += 1

    async def _trickle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
    ) -> None:
        for byte in data:
            if reader.at_eof():
                return
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(PAUSE)

    async def _send_headers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._trickle(reader, writer, HEAD)

    async def _send_body(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        await self._trickle(reader, writer, BODY)

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LARGE_HEAD + LARGE)
        while await reader.read(1):
            await asyncio.sleep(PAUSE)


async def ask(url: str, seconds: float) -> list[float]:
    """Send right requests for some seconds; return the latencies of the answers."""
    found, until = list[float](), time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=30.0) as client:
        while (start := time.monotonic()) < until:
            answer = await client.post("/embed", content=BODY, headers=JSON)
            assert answer.status_code == 200, answer.text
            found.append(time.monotonic() - start)
            await asyncio.sleep(0.005)
    return found


async def attack(url: str, connections: int, seconds: float) -> tuple[list[float], int]:
    """Return the latencies beside slow clients, and how many of these were dropped."""
    clients = SlowClients(url)
    tasks = [asyncio.create_task(clients.run(number)) for number in range(connections)]
    latencies = await ask(url, seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return latencies, clients.dropped


def main(*, connections: int, seconds: float) -> tuple[list[float], list[float], int]:
    """Return latencies without and beside slow clients, and how many of these were dropped."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(write_sentence_directory(Path(folder))) as (_, url),
    ):
        alone = asyncio.run(ask(url, seconds / 4))
        beside, dropped = asyncio.run(attack(url, connections, seconds))
        until = time.monotonic() + 60.0
        while gauges(url)["encoder_engine_connections"] > 1:
            assert time.monotonic() < until, "connections are left"
            time.sleep(0.2)
    return alone, beside, dropped


def describe(latencies: list[float]) -> str:
    """Return the number of answers and their percentiles."""
    times = sorted(latencies)
    p50, p99 = (1e3 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    return f"{len(times)} answers, p50 {p50:.2f} ms, p99 {p99:.2f} ms"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    without, with_slow, number = main(**vars(parser.parse_args()))
    print(f"without slow clients: {describe(without)}")
    print(f"beside them: {describe(with_slow)}; {number} slow connections were dropped")
