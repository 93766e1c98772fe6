"""Serves a directory, each batch so many seconds late: ``python -m tests.serving.slow_server``."""

from __future__ import annotations

import sys
import time
from typing import Any

from encoder_engine.embedding import Embedder
from encoder_engine.serving.http.access import AccessLog
from encoder_engine.serving.models import ServedModel
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.server import run_server
from encoder_engine.serving.service import Service


def main(directory: str, seconds: float, drain_timeout: float) -> int:
    """Serve until a signal; print the address when requests are taken."""
    embedder = Embedder.from_pretrained(directory, device="cpu", num_threads=1)
    compute = ServedModel.compute

    def slow(self: ServedModel, task: Any, rows: Any, options: Any) -> Any:
        print("computing", flush=True)
        time.sleep(seconds)
        return compute(self, task, rows, options)

    def begin(address: str) -> None:
        ServedModel.compute = slow  # type: ignore[method-assign]
        print(address, flush=True)

    service = Service({"tiny": embedder}, ServingOptions(drain_timeout=drain_timeout))
    return run_server(
        service,
        host="127.0.0.1",
        port=0,
        ready=begin,
        access_log=AccessLog("all", stream=sys.stderr),
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
