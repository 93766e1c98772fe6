"""Authenticates requests, and reads their bodies within limits.

Checks that need no body come first: route, host, key, content type, and the stated size. The bytes
are counted again while the body is read, and reading has a deadline. All bodies together have a
limit, beyond which reading pauses.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections import deque
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.serving.http.faults import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BodyReader",
    "DisconnectError",
    "Keys",
    "Limits",
    "check_content_type",
    "check_host",
    "headers_of",
    "timeout_of",
]

Headers = dict[bytes, bytes]
# A name of the DNS has at most 253 characters.
HOST_BYTES = 300
JSON = b"application/json"
REQUEST_ID = re.compile(rb"[\w.-]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of requests.

    max_body_bytes: the most bytes of one body.
    max_bodies_bytes: the most bytes of all bodies together; a body counts, with its stated size or
        the largest allowed, from before it is read until it is answered.
    max_connections: with more open connections, requests other than health checks are refused and
        their connections closed.
    body_timeout: seconds for a whole body.
    allowed_hosts: names that ``Host`` may have beside localhost and loopback addresses, in upper or
        lower case; ``"*"`` allows any.
    """

    max_body_bytes: int = 16 * 2**20
    max_bodies_bytes: int = 512 * 2**20
    max_connections: int = 4096
    body_timeout: float = 30.0
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The names of clients by the SHA-256 of their API keys; empty: requests need no key."""

    names: Mapping[bytes, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Keys:
        """Parse lines of ``name:key``; blank lines and lines that begin with ``#`` are skipped.

        Raises :class:`ValueError` for another line, and for a text without a key.
        """
        names = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, colon, key = line.strip().partition(":")
            if not colon or not name or not key:
                raise ValueError(f"line {number} is not name:key")
            names[hashlib.sha256(key.encode()).digest()] = name
        if not names:
            raise ValueError("it has no line name:key, and everyone could ask")
        return cls(names=names)

    def name_of(self, headers: Headers) -> str | None:
        """Return the name of the client whose key a request has; None where no key is needed.

        Raises :class:`RequestError` for a missing or unknown key. All keys are compared, in
        constant time.
        """
        if not self.names:
            return None
        given = headers.get(b"authorization", b"").strip()
        if given[:7].lower() == b"bearer ":
            given = given[7:].strip()
        digest, found = hashlib.sha256(given).digest(), None
        for known, name in self.names.items():
            if hmac.compare_digest(known, digest):
                found = name
        if found is None:
            raise RequestError("key", "the API key is missing or unknown; send it as Bearer KEY")
        return found


def headers_of(scope: Mapping[str, Any]) -> Headers:
    """Return a request's headers by name: of repeated headers the last.

    If ``Host`` is repeated, its value is empty, because a proxy may have read another of them.
    """
    found = dict(scope["headers"])
    if len(found) < len(scope["headers"]) and sum(n == b"host" for n, _ in scope["headers"]) > 1:
        # A proxy may have read another of them (RFC 9112, section 3.2).
        found[b"host"] = b""
    return found


def check_host(headers: Headers, limits: Limits) -> None:
    """Raise :class:`RequestError` for a ``Host`` that is not allowed (DNS rebinding, CWE-350)."""
    if not _is_allowed(headers.get(b"host", b"")[:HOST_BYTES], limits.allowed_hosts):
        raise RequestError("host", "this Host is not allowed; start the server with --allowed-host")


@lru_cache(maxsize=256)
def _is_allowed(given: bytes, allowed_hosts: tuple[str, ...]) -> bool:
    if "*" in allowed_hosts:
        return True
    host = given.decode("latin-1")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").lower()
    if name == "localhost" or name in (allowed.lower() for allowed in allowed_hosts):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_content_type(headers: Headers) -> None:
    """Raise :class:`RequestError` for a body whose content type is not plain JSON."""
    given = headers.get(b"content-type", b"")
    if given != JSON and given.split(b";")[0].strip().lower() != JSON:
        raise RequestError("content_type", "the body must be JSON: content-type application/json")
    if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
        raise RequestError("content_type", "content-encoding is not supported; send the body plain")
    if b"transfer-encoding" in headers and headers[b"transfer-encoding"].lower() != b"chunked":
        raise RequestError("content_type", "a transfer-encoding but chunked is not supported")


class DisconnectError(Exception):
    """The client disconnected before its answer."""


class BodyReader:
    """Reads the bodies of requests within the limits.

    Each body reserves memory, of its stated size or else of the largest allowed, until its request
    is answered. Where all reservations together reach the limit, further bodies wait unread.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def reserve(self, headers: Headers) -> int:
        """Reserve memory for a body until :meth:`release`, and return the number of reserved bytes.

        Raises :class:`RequestError` if the body is too large, or if no memory becomes free in time.
        """
        most = self._limits.max_body_bytes
        stated = headers.get(b"content-length")
        size = most if stated is None else _number(stated)
        if size is None or size > most:
            raise _too_large(most)
        reserved = min(size, self._limits.max_bodies_bytes)
        if not self._reserve_now(reserved):
            try:
                async with asyncio.timeout(self._limits.body_timeout):
                    await self._wait_for(reserved)
            except TimeoutError:
                reason = "too many large bodies at a time; try again later"
                raise RequestError("busy", reason) from None
        return reserved

    def release(self, reserved: int) -> None:
        """Free the memory that was reserved for a body."""
        self._reserved -= reserved
        if self._waiting:
            self._wake()

    async def read(self, receive: Any) -> bytes:
        """Read a body. Raises :class:`RequestError` for one that is too large or too slow.

        Raises :class:`DisconnectError` where the client goes away.
        """
        most, seconds = self._limits.max_body_bytes, self._limits.body_timeout
        try:
            async with asyncio.timeout(seconds):
                return await _read(receive, most)
        except TimeoutError:
            raise RequestError(
                "slow_body", f"the body did not arrive within {seconds:g} seconds"
            ) from None

    def _reserve_now(self, size: int) -> bool:
        """Reserve memory for a body if enough is free and no other body waits.

        Return whether it did.
        """
        if self._waiting or self._reserved + size > self._limits.max_bodies_bytes:
            return False
        self._reserved += size
        return True

    async def _wait_for(self, size: int) -> None:
        """Wait, in order of arrival, until memory for a body is free."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._reserved -= size
            elif entry in self._waiting:
                self._waiting.remove(entry)
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if turn.done():
                # Cancelled in this pass of the event loop; its task has not removed the entry yet.
                self._waiting.popleft()
                continue
            if self._reserved + size > self._limits.max_bodies_bytes:
                return
            self._waiting.popleft()
            self._reserved += size
            turn.set_result(None)


async def _read(receive: Any, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectError
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _number(digits: bytes) -> int | None:
    """Parse a number of at most 18 digits; return None for anything else."""
    return int(digits) if digits.isdigit() and len(digits) <= 18 else None


def _too_large(most: int) -> RequestError:
    return RequestError("body", f"the body is larger than {most} bytes; split the request")


def timeout_of(headers: Headers) -> float | None:
    """Return the value of ``x-request-timeout-ms`` in seconds; None without this header.

    Raises :class:`RequestError` for another value than 1 ms to a day.
    """
    given = headers.get(b"x-request-timeout-ms")
    if given is None:
        return None
    found = _number(given)
    if found is None or not 1 <= found <= 86_400_000:
        raise RequestError("invalid", "x-request-timeout-ms must be 1 to 86400000 milliseconds")
    return found / 1000.0
