"""Starts HTTP servers of an embedding model as processes, and embeds texts through them.

The client runs in the candidate's process, beside the server: all candidates pay for the same one.
It needs the standard library alone, because it also runs in the environments of peers.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.measuring.case import EmbeddingJob, Work
from benchmarks.measuring.worker_main import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

START_SECONDS = 120.0
MODEL = "minilm"


@dataclass(frozen=True, kw_only=True)
class ServingJob:
    """Texts to embed over HTTP by several connections at once.

    connections: each sends its next request after the answer to its last one.
    texts_each: the number of texts in a request.
    path: the path of the server's OpenAI-compatible route of embeddings.
    """

    job: EmbeddingJob
    connections: int
    texts_each: int
    path: str = "/v1/embeddings"

    def bodies(self) -> list[bytes]:
        """Return the bodies of all requests, as JSON."""
        texts, each = self.job.texts, self.texts_each
        parts = [list(texts[start : start + each]) for start in range(0, len(texts), each)]
        usual = {"model": MODEL, "encoding_format": "base64"}
        return [json.dumps({**usual, "input": part}).encode() for part in parts]


class ServerProcess:
    """A server process that leads a process group of its own.

    command: arguments with ``{port}``, ``{directory}`` and ``{threads}`` to fill in.
    ready: the path that answers once the server is ready.
    """

    def __init__(self, command: Sequence[str], job: EmbeddingJob, *, ready: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        named = {"port": self.port, "directory": job.directory, "threads": job.threads}
        self.process = subprocess.Popen(
            [part.format(**named) for part in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_with_parent,
            env=os.environ | {"OMP_NUM_THREADS": str(job.threads)},
        )
        atexit.register(self.stop)
        self._wait(f"http://127.0.0.1:{self.port}{ready}")

    def stop(self) -> None:
        """End the server."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def _wait(self, url: str) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                with urlopen(url, timeout=5):
                    return
            except (URLError, OSError) as error:
                code = self.process.poll()
                if code is not None:
                    raise RuntimeError(f"the server ended with code {code}") from error
                if time.monotonic() > until:
                    self.stop()
                    raise RuntimeError("the server did not start") from error
                time.sleep(0.05)


def our_command(precision: str) -> tuple[str, ...]:
    """Return the command that starts the engine's server, with placeholders."""
    command = (sys.executable, "-m", "encoder_engine.cli", "serve", "-m", f"{MODEL}={{directory}}")
    options = ("--dtype", precision, "--port", "{port}", "--threads", "{threads}")
    return (*command, *options, "--access-log", "off")


def closed_loop(port: int, path: str, bodies: Sequence[bytes], connections: int) -> list[bytes]:
    """Send every body, over connections that each wait for their answer; return the answers.

    Raises ``RuntimeError`` for an answer other than 200.
    """
    answers = [b""] * len(bodies)
    numbers = iter(range(len(bodies)))

    def work(_: int) -> None:
        connection = HTTPConnection("127.0.0.1", port)
        for number in numbers:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, bodies[number], headers)
            answer = connection.getresponse()
            answers[number] = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"request {number} was answered with {answer.status}")
        connection.close()

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(work, range(connections)))
    return answers


def build(serving: ServingJob, command: Sequence[str], ready: str) -> Work:
    """Start a server; the timed call sends all texts, the gate's call returns their vectors."""
    server = ServerProcess(command, serving.job, ready=ready)
    bodies = serving.bodies()

    def send() -> list[bytes]:
        return closed_loop(server.port, serving.path, bodies, serving.connections)

    def vectors() -> Any:
        import numpy as np

        return np.concatenate([read_vectors(answer) for answer in send()])

    return Work(call=send, answer=vectors)


def read_vectors(body: bytes) -> Any:
    """Decode the vectors [N, D] of an answer, as OpenAI's clients do."""
    import numpy as np

    rows = sorted(json.loads(body)["data"], key=lambda row: row["index"])
    vectors = [row["embedding"] for row in rows]
    if isinstance(vectors[0], str):
        vectors = [array("f", base64.b64decode(vector)) for vector in vectors]
    return np.array(vectors, dtype=np.float32)
