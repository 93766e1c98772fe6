"""Records an OpenTelemetry span for each request if the API is installed; no text is recorded.

A span continues the caller's trace (``traceparent``). It has the route, the status, the kind of an
error and the request's id. Without a tracer provider, spans are not recorded:
``opentelemetry-instrument encoder-engine serve ...`` sets one from the environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_engine.serving.http.access import Entry
    from encoder_engine.serving.http.guard import Headers

__all__ = ["Tracing"]

# The headers of the caller's trace. The baggage header is not read: nothing is sent on, and the API
# would log malformed parts, which are the caller's words. A malformed tracestate is left out for
# the same reason.
_TRACEPARENT, _TRACESTATE = b"traceparent", b"tracestate"
_KEY = rb"[a-z0-9][a-z0-9_*/-]{0,240}(?:@[a-z][a-z0-9_*/-]{0,13})?"
_VALUE = rb"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rb"%b=%b" % (_KEY, _VALUE))


class Tracing:
    """Begins and ends spans; does nothing if the API is not installed."""

    def __init__(self) -> None:
        self._trace: Any = None
        self._on: bool | None = None
        if importlib.util.find_spec("opentelemetry") is not None:
            self._trace = importlib.import_module("opentelemetry.trace")
            self._propagate = importlib.import_module("opentelemetry.propagate")
            self._tracer = self._trace.get_tracer("encoder_engine.serving")

    def begin(self, headers: Headers) -> Any:
        """Begin a request's span, within its caller's trace; return None if nothing records it.

        Only the first request asks whether a provider is set: the API reads the environment each
        time.
        """
        if self._on is None:
            self._on = self._trace is not None and not isinstance(
                self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider
            )
        if not self._on:
            return None
        carried = {}
        if _TRACEPARENT in headers:
            carried["traceparent"] = headers[_TRACEPARENT].decode("latin-1")
        state = headers.get(_TRACESTATE, b"")
        if state and all(_MEMBER.fullmatch(one.strip(b" \t")) for one in state.split(b",")):
            carried["tracestate"] = state.decode("ascii")
        kind = self._trace.SpanKind.SERVER
        return self._tracer.start_span(
            "request", context=self._propagate.extract(carried), kind=kind
        )

    def end(self, span: Any, entry: Entry) -> None:
        """End a span, with the fields of the request's log entry as attributes."""
        if span.is_recording():
            span.update_name(f"{entry.method} {entry.path}")
            span.set_attributes(
                {
                    "http.request.method": entry.method,
                    "http.route": entry.path,
                    "http.response.status_code": entry.status,
                    "encoder_engine.request_id": entry.request_id.decode("latin-1"),
                    "encoder_engine.client": entry.client,
                }
            )
            if entry.kind != "ok":
                span.set_attribute("error.type", entry.kind)
            if entry.status >= 500:
                span.set_status(self._trace.StatusCode.ERROR)
        span.end()
