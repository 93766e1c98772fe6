"""Logs requests as lines of JSON: counts, types and times, and no text of a caller."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Literal

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AccessLog", "Entry"]

LOGGER = logging.getLogger("encoder_engine.serving")


class Entry:
    """A finished request."""

    def __init__(
        self,
        request_id: bytes,
        scope: Mapping[str, Any],
        client: str,
        status: int,
        kind: str,
        start: float,
    ) -> None:
        self.request_id, self.client, self.status, self.kind = request_id, client, status, kind
        self.method, self.path, self.start = scope["method"], scope["path"], start


class AccessLog:
    """Writes requests to the logger ``encoder_engine.serving``.

    ``level``: ``"errors"`` writes those that failed, ``"all"`` every one, ``"off"`` none.
    """

    def __init__(self, level: Literal["errors", "all", "off"] = "errors") -> None:
        self._level = level

    def add(self, entry: Entry) -> None:
        """Log a request where its level is wanted."""
        if self._level == "off" or (self._level == "errors" and entry.status < 500):
            return
        LOGGER.info(
            orjson.dumps(
                {
                    "time": time.time(),
                    "id": entry.request_id.decode("latin-1"),
                    "client": entry.client,
                    "method": entry.method,
                    "path": entry.path if len(entry.path) <= 64 else "long",
                    "status": entry.status,
                    "kind": entry.kind,
                    "seconds": round(time.monotonic() - entry.start, 6),
                }
            ).decode()
        )

    def failure(self, request_id: bytes, error: Exception) -> None:
        """Log the type of an error of a model; its message may quote a text."""
        row = getattr(error, "row", None)
        LOGGER.error(
            orjson.dumps(
                {"id": request_id.decode("latin-1"), "error": type(error).__name__, "row": row}
            ).decode()
        )
