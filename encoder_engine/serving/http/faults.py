"""Maps exceptions to HTTP statuses and bodies, in the format of the route's API.

No message holds the caller's text. Errors of the engine may quote it, so the answer states only
their type and the index of the text.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import orjson

from encoder_engine.errors import (
    DeadlineError,
    DeviceMemoryError,
    DrainingError,
    InputError,
    NonFiniteVectorError,
    OverloadedError,
    RequestSizeError,
    SequenceLengthError,
    TextError,
    UnknownNameError,
    UnsupportedFeatureError,
)
from encoder_engine.serving.lane import rows_of

__all__ = ["Face", "Fault", "RequestError", "describe", "statuses_of"]

Face = Literal["openai", "tei"]


class RequestError(Exception):
    """A request that the HTTP layer refuses before the service sees it.

    kind: a key of :data:`STATUSES`.
    param: the field that is wrong.
    allow: the HTTP methods that the path supports.
    """

    def __init__(
        self, kind: str, message: str, *, param: str | None = None, allow: str | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.param, self.allow = kind, param, allow


class Fault(NamedTuple):
    """The answer to a request that failed."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    kind: str


# For each kind of error: the status on OpenAI's and Cohere's routes, OpenAI's type and code, the
# status on TEI's routes, and TEI's error_type.
STATUSES: dict[str, tuple[int, str, str | None, int, str]] = {
    "malformed": (400, "invalid_request_error", None, 400, "Validation"),
    "invalid": (400, "invalid_request_error", None, 422, "Validation"),
    "empty": (400, "invalid_request_error", None, 400, "Empty"),
    "too_many": (413, "invalid_request_error", None, 422, "Validation"),
    "too_large": (413, "invalid_request_error", None, 413, "Validation"),
    "too_long": (400, "invalid_request_error", "context_length_exceeded", 422, "Tokenizer"),
    "key": (401, "authentication_error", "invalid_api_key", 401, "Unauthorized"),
    "model": (404, "invalid_request_error", "model_not_found", 404, "Validation"),
    "task": (400, "invalid_request_error", None, 424, "Backend"),
    "route": (404, "invalid_request_error", None, 404, "Validation"),
    "method": (405, "invalid_request_error", None, 405, "Validation"),
    "host": (403, "invalid_request_error", None, 403, "Validation"),
    "body": (413, "invalid_request_error", None, 413, "Validation"),
    "slow_body": (408, "invalid_request_error", None, 408, "Validation"),
    "content_type": (415, "invalid_request_error", None, 415, "Validation"),
    "busy": (429, "rate_limit_error", "overloaded", 429, "Overloaded"),
    "overloaded": (429, "rate_limit_error", "overloaded", 429, "Overloaded"),
    "late": (504, "timeout_error", "timeout", 504, "Overloaded"),
    "draining": (503, "service_unavailable_error", None, 503, "Unhealthy"),
    "failed": (500, "server_error", None, 424, "Backend"),
}

# The kinds of errors of requests without a body, and the kinds that belong to no route.
_WITHOUT_BODY = ("invalid", "key", "host")
_NO_ROUTE = ("route", "method")
# The protocol refuses large headers before a route is known, with a body of the same form.
TOO_MUCH_HEADERS = 431
_CLOSING = ("body", "slow_body", "busy")


def statuses_of(face: Face, *, reads: bool, named: bool = False) -> list[int]:
    """Return the HTTP statuses of errors with which a route may answer.

    face: the API whose format its errors have.
    reads: its requests have a body.
    named: its path names a model.
    """
    place = 0 if face == "openai" else 3
    kinds = [kind for kind in STATUSES if kind not in _NO_ROUTE] if reads else list(_WITHOUT_BODY)
    kinds += ["model"] if named else []
    return sorted({int(str(STATUSES[kind][place])) for kind in kinds} | {TOO_MUCH_HEADERS})


def kind_of(error: Exception) -> tuple[str, str]:
    """Return an error's kind (a key of ``STATUSES``) and a message without the caller's text."""
    rows = rows_of(error)
    place = f"text {rows[0]}: " if rows else ""
    if isinstance(error, RequestError):
        return error.kind, str(error)
    if isinstance(error, OverloadedError):
        return "overloaded", str(error)
    if isinstance(error, DeadlineError):
        return "late", str(error)
    if isinstance(error, DrainingError):
        return "draining", str(error)
    if isinstance(error, RequestSizeError):
        return "too_large", str(error)
    if isinstance(error, SequenceLengthError):
        return (
            "too_long",
            f"{place}it has more tokens than the model takes; shorten it, or allow truncation",
        )
    if isinstance(error, UnknownNameError):
        return "model", "there is no model of that name; GET /v1/models lists them"
    if isinstance(error, UnsupportedFeatureError):
        return "task", str(error)
    if isinstance(error, TextError):
        return "invalid", f"{place}it is no valid Unicode text: it has a lone surrogate"
    if isinstance(error, InputError):
        return "invalid", f"{place}{_plain(error)}"
    if isinstance(error, NonFiniteVectorError):
        return "failed", f"{place}the model's numbers overflow; load it as float32"
    if isinstance(error, DeviceMemoryError):
        return "failed", f"{place}it needs more memory than the device has"
    return "failed", f"the model failed ({type(error).__name__}); the log has the reason"


def _plain(error: InputError) -> str:
    """Return the message of an error about options; a fixed message for an error about a text."""
    return str(error) if error.row is None else "it cannot be used; see the rules of the model"


def describe(error: Exception, face: Face) -> Fault:
    """Return the HTTP answer for an exception, in the format of the route's API."""
    kind, message = kind_of(error)
    status, type_, code, tei_status, tei_type = STATUSES[kind]
    param = getattr(error, "param", None)
    body: dict[str, object]
    if face == "openai":
        details = {"message": message, "type": type_, "param": param, "code": code}
        body = {"error": details, "message": message}
    else:
        if param is not None and param not in message:
            message = f"{param}: {message}"
        status, body = tei_status, {"error": message, "error_type": tei_type}
    headers: list[tuple[bytes, bytes]] = []
    if kind in ("overloaded", "busy", "draining"):
        seconds = error.retry_after if isinstance(error, OverloadedError) else 1.0
        headers.append((b"retry-after", str(max(1, round(seconds))).encode()))
        headers.append((b"retry-after-ms", str(max(1, round(1000 * seconds))).encode()))
    if kind in _CLOSING:
        # The rest of the body would be read for nothing.
        headers.append((b"connection", b"close"))
    allow = getattr(error, "allow", None)
    if allow is not None:
        headers.append((b"allow", allow.encode()))
    if kind == "key":
        headers.append((b"www-authenticate", b"Bearer"))
    return Fault(status, orjson.dumps(body), tuple(headers), kind)
