"""Logs finished requests as lines of JSON or text: client, path, status, time; no caller's text."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Literal

import orjson

from encoder_engine.serving.lane import rows_of

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["AccessLog", "Entry"]

LOGGER = logging.getLogger("encoder_engine.serving")
FLUSH_SECONDS = 0.1


class Entry:
    """The facts of a finished request that a line of the access log gives.

    client: the name of its key. kind: ``"ok"``, ``"cancelled"`` or the kind of its error. start:
    the :func:`time.monotonic` of its arrival.
    """

    __slots__ = ("client", "kind", "method", "path", "request_id", "start", "status")

    def __init__(
        self,
        request_id: bytes,
        method: str,
        path: str,
        client: str,
        status: int,
        kind: str,
        start: float,
    ) -> None:
        self.request_id, self.client, self.status, self.kind = request_id, client, status, kind
        self.method, self.path, self.start = method, path, start


class AccessLog:
    """Writes requests as lines, flushed every :data:`FLUSH_SECONDS`.

    level: ``"errors"`` writes requests with a status of 500 or more, ``"all"`` every request,
        ``"off"`` none.
    form: ``"json"`` or ``"text"``.
    stream: the file to write to; None: the logger ``encoder_engine.serving``, which takes 39 us a
        line instead of 3.
    """

    def __init__(
        self,
        level: Literal["errors", "all", "off"] = "errors",
        *,
        form: Literal["json", "text"] = "json",
        stream: TextIO | None = None,
    ) -> None:
        self._level, self._form, self._stream = level, form, stream
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entry: Entry) -> None:
        """Log a request, unless ``level`` leaves it out."""
        if self._level == "off" or (self._level == "errors" and entry.status < 500):
            return
        self._write(
            {
                "time": round(time.time(), 3),
                "id": entry.request_id.decode("latin-1"),
                "client": entry.client,
                "method": entry.method,
                "path": entry.path,
                "status": entry.status,
                "kind": entry.kind,
                "seconds": round(time.monotonic() - entry.start, 6),
            }
        )

    def failure(self, request_id: bytes, error: Exception) -> None:
        """Log the type of an exception of a model, not its message, which may quote a text."""
        self._write(
            {
                "id": request_id.decode("latin-1"),
                "error": type(error).__name__,
                "rows": rows_of(error)[:16],
            }
        )

    def flush(self) -> None:
        """Write the buffered lines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        if self._stream is not None and lines:
            self._stream.write("".join(lines))
            self._stream.flush()

    def _write(self, facts: dict[str, Any]) -> None:
        if self._form == "json":
            line = orjson.dumps(facts).decode()
        else:
            line = " ".join(f"{name}={value}" for name, value in facts.items())
        if self._stream is None:
            LOGGER.info(line)
            return
        self._lines.append(line + "\n")
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
