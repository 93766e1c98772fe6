"""Starts HTTP servers of a model as processes, and embeds texts through them.

The client runs in the candidate's process, beside the server: all candidates pay for the same one.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.jobs.http_load import Target, closed_loop
from benchmarks.measuring.case import EmbeddingJob, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

START_SECONDS = 120.0
MODEL = "minilm"


@dataclass(frozen=True, kw_only=True)
class ServingJob:
    """An embedding job over HTTP.

    connections: that each wait for their answer.
    texts_each: texts of a request.
    """

    job: EmbeddingJob
    connections: int
    texts_each: int

    def bodies(self) -> tuple[bytes, ...]:
        """Return the requests of OpenAI's route, each with its texts."""
        texts, each = self.job.texts, self.texts_each
        return tuple(
            json.dumps(
                {
                    "model": MODEL,
                    "input": list(texts[start : start + each]),
                    "encoding_format": "base64",
                }
            ).encode()
            for start in range(0, len(texts), each)
        )


class ServerProcess:
    """A server of its own process group.

    command: with ``{port}`` and ``{directory}``. ready: the path that answers when it is ready.
    """

    def __init__(self, command: Sequence[str], job: EmbeddingJob, *, ready: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        named = {
            "port": self.port,
            "directory": job.directory,
            "threads": job.threads,
            "max_length": job.max_length,
        }
        self.process = subprocess.Popen(
            [part.format(**named) for part in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,
            env=os.environ | {"OMP_NUM_THREADS": str(job.threads)},
        )
        atexit.register(self.stop)
        self._wait(f"http://127.0.0.1:{self.port}{ready}")

    def target(self, path: str, bodies: tuple[bytes, ...]) -> Target:
        """Return the target of requests to a path."""
        return Target(host="127.0.0.1", port=self.port, path=path, bodies=bodies)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and its children."""
        import psutil

        process = psutil.Process(self.process.pid)
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        return float(sum(one.user + one.system for one in times))

    def loop_seconds(self) -> float:
        """Return the CPU time of the first thread, which has the event loop; Linux only."""
        pid = self.process.pid
        spent = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii")
        return int(spent.split()[0]) / 1e9

    def stop(self) -> None:
        """End it."""
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
                if self.process.poll() is not None:
                    raise RuntimeError(
                        f"the server ended with code {self.process.returncode}"
                    ) from error
                if time.monotonic() > until:
                    self.stop()
                    raise RuntimeError("the server did not start") from error
                time.sleep(0.05)


def _end_with_parent() -> None:
    """End where the parent is killed: prctl(PR_SET_PDEATHSIG), Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def our_command(*, precision: str) -> tuple[str, ...]:
    """Return the command of our server."""
    name = "{directory}"
    command = (sys.executable, "-m", "encoder_engine.cli", "serve", "-m", f"{MODEL}={name}")
    options = ("--dtype", precision, "--port", "{port}", "--threads", "{threads}")
    return (*command, *options, "--access-log", "off")


def build(serving: ServingJob, command: Callable[[], Sequence[str]], path: str, ready: str) -> Work:
    """Start a server; a call sends all texts, and the answer is their vectors."""
    server = ServerProcess(command(), serving.job, ready=ready)
    bodies = serving.bodies()
    target = server.target(path, bodies)

    def send() -> list[Any]:
        found = closed_loop(target, connections=serving.connections, requests=len(bodies))
        bad = [answer.status for answer in found if answer.status != 200]
        if bad or len(found) != len(bodies):
            raise RuntimeError(f"{len(bad)} of {len(bodies)} requests failed: {bad[:3]}")
        return found

    def vectors() -> Any:
        import numpy as np

        return np.concatenate([read_vectors(answer.body) for answer in send()])

    return Work(call=send, answer=vectors)


def read_vectors(body: bytes) -> Any:
    """Read the vectors of an answer as OpenAI's clients do: base64, or lists of numbers."""
    import numpy as np

    rows = sorted(json.loads(body)["data"], key=lambda row: row["index"])
    return np.array(
        [
            array("f", base64.b64decode(row["embedding"]))
            if isinstance(row["embedding"], str)
            else row["embedding"]
            for row in rows
        ],
        dtype=np.float32,
    )
