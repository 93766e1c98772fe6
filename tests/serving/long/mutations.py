"""Sends mutated HTTP requests over raw sockets: ``python -m tests.serving.long.mutations``.

A case is one request, or several pipelined ones, with bytes changed, left out, repeated or put in,
cut anywhere, and sent in pieces. Every byte that comes back must belong to well-formed answers, of
which none says 500. All the while another client sends right requests and compares its answers. At
the end the server has no connection and no text left, and exits with 0 and an empty log. Prints the
cases and the answers by status.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = json.dumps({"inputs": ["the row", "a text"]}).encode()
HEAD = (
    b"POST /embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % len(BODY)
)
CHUNKED = HEAD.replace(b"content-length: %d" % len(BODY), b"transfer-encoding: chunked") + (
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
)
REQUESTS = (HEAD + BODY, CHUNKED, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
PIECES = (
    b"\r\n", b"\n", b"\r", b"\x00", b": ", b" ", b"chunked", b"\xff", b"0", b'"', b"-", b"\t",
    b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"HTTP/1.1",
    b"expect: 100-continue\r\n", b"upgrade: websocket\r\nconnection: upgrade\r\n",
)  # fmt: skip
# Cases at a time, and seconds of silence after which a connection is closed.
CONNECTIONS, SILENCE = 64, 0.05
STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")
# Answers to the other client that may take longer than this are no sign of anything.
OTHER_SECONDS = 10.0


def mutated(draw: random.Random) -> bytes:
    """Return one to four requests with up to four mutations, perhaps cut."""
    found = bytearray(b"".join(draw.choice(REQUESTS) for _ in range(draw.choice((1, 1, 1, 2, 4)))))
    for _ in range(draw.randint(0, 4)):
        place, kind = draw.randrange(len(found)), draw.randrange(5)
        if kind == 0:
            found[place] = draw.randrange(256)
        elif kind == 1:
            found[place] ^= 1 << draw.randrange(8)
        elif kind == 2:
            del found[place : place + draw.randint(1, 8)]
            found = found or bytearray(b"\r\n")
        elif kind == 3:
            found[place:place] = found[place : place + draw.randint(1, 40)]
        else:
            found[place:place] = draw.choice(PIECES)
    return bytes(found[: draw.randrange(len(found))] if draw.random() < 0.2 else found)


def pieces(draw: random.Random, sent: bytes) -> list[bytes]:
    """Cut bytes at up to three places."""
    cuts = sorted(draw.randrange(len(sent) + 1) for _ in range(draw.choice((0, 0, 1, 3))))
    return [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True) if a < b]


def statuses_of(received: bytes) -> list[int]:
    """Return the statuses of answers, of which the last may lack its end.

    Raises ``AssertionError`` for bytes that are no answer.
    """
    found, place = [], 0
    while place < len(received):
        line = STATUS_LINE.match(received, place)
        if line is None:
            assert b"HTTP/1.1 ".startswith(received[place : place + 9][:9]), received
            break
        status = int(line[1])
        found.append(status)
        end = received.find(b"\r\n\r\n", place)
        if end < 0:
            break
        head = received[place:end].lower()
        size = re.search(rb"\r\ncontent-length: (\d+)(\r\n|$)", head)
        if size is not None:
            place = end + 4 + int(size[1])
        elif status < 200:
            place = end + 4
        elif b"\r\ntransfer-encoding: chunked" in head:
            last = received.find(b"0\r\n\r\n", end)
            place = len(received) if last < 0 else last + 5
        else:
            # The body ends with the connection.
            place = len(received)
    return found


class Mutations:
    """Cases against a server, and what came of them."""

    def __init__(self, url: str, *, cases: int, seconds: float, seed: int) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._url, self._host, self._port = url, parts.hostname, parts.port
        self._draw, self._left = random.Random(seed), cases
        self._until = time.monotonic() + seconds
        self.num_cases, self.num_others = 0, 0
        self.statuses: Counter[int] = Counter()

    async def run(self) -> None:
        """Send the cases, or as many as the time allows."""
        other = asyncio.create_task(self._be_another_client())
        await asyncio.gather(*(self._work() for _ in range(CONNECTIONS)))
        self._left = 0
        await other

    async def _work(self) -> None:
        while self._left > 0 and time.monotonic() < self._until:
            self._left -= 1
            self.num_cases += 1
            await self._send(mutated(self._draw))

    async def _send(self, sent: bytes) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        received = bytearray()
        try:
            for piece in pieces(self._draw, sent):
                writer.write(piece)
                await writer.drain()
            while part := await asyncio.wait_for(reader.read(65_536), SILENCE):
                received += part
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
        found = statuses_of(bytes(received))
        assert not any(status == 500 for status in found), sent
        self.statuses.update(found or [0])

    async def _be_another_client(self) -> None:
        """Send right requests, whose answers must be those of the first one."""
        async with httpx.AsyncClient(base_url=self._url, timeout=OTHER_SECONDS) as client:
            first = None
            while self._left > 0 and time.monotonic() < self._until:
                answer = await client.post("/embed", content=BODY, headers=JSON)
                assert answer.status_code == 200, answer.text
                first = first or answer.content
                assert answer.content == first
                self.num_others += 1
                await asyncio.sleep(0.01)


JSON = {"content-type": "application/json"}


@contextmanager
def served(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a directory by the command, and end it; its log must be empty then."""
    command = (sys.executable, "-m", "encoder_engine.cli", "serve", "-m", f"tiny={directory}")
    with subprocess.Popen(
        [*command, "--port", "0", "--threads", "1", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "Serving at " in line, line
        try:
            yield process, line.split("Serving at ")[1].split()[0]
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
            assert process.returncode == 0, log
            assert log == "", log
        finally:
            process.kill()


def gauges(url: str) -> dict[str, float]:
    """Return the metrics without labels."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line[:1] != "#"}


def main(*, cases: int, seconds: float, seed: int, http: str = "auto") -> Mutations:
    """Serve a small model, send the cases, and look at what is left."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(write_sentence_directory(Path(folder)), "--http", http) as (_, url),
    ):
        found = Mutations(url, cases=cases, seconds=seconds, seed=seed)
        asyncio.run(found.run())
        until = time.monotonic() + 15.0
        while (left := gauges(url))["encoder_engine_connections"] > 1:
            assert time.monotonic() < until, left
            time.sleep(0.1)
        assert left["encoder_engine_queued_texts"] == left["encoder_engine_queued_bytes"] == 0
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--http", choices=("auto", "h11", "httptools"), default="auto")
    ran = main(**vars(parser.parse_args()))
    print(f"{ran.num_cases} cases, {ran.num_others} right answers beside them")
    print(f"answers by status, 0 for none: {dict(sorted(ran.statuses.items()))}")
