"""Records a span for each request if OpenTelemetry's API is installed; it holds no caller's text.

A span continues the caller's trace (``traceparent``). It has the route, the status, the kind of an
error and the request's id. Without a tracer provider, spans are not recorded:
``opentelemetry-instrument encoder-engine serve ...`` sets one from the environment.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_engine.serving.http.access import Entry
    from encoder_engine.serving.http.guard import Headers

__all__ = ["Tracing"]

_CARRIED = ("traceparent", "tracestate", "baggage")


class Tracing:
    """Begins and ends spans; does nothing if the API is not installed."""

    def __init__(self) -> None:
        self._trace: Any = None
        if importlib.util.find_spec("opentelemetry") is not None:
            self._trace = importlib.import_module("opentelemetry.trace")
            self._propagate = importlib.import_module("opentelemetry.propagate")
            self._tracer = self._trace.get_tracer("encoder_engine.serving")

    def begin(self, headers: Headers) -> Any:
        """Begin the span of a request in its caller's trace; None if the API is not installed."""
        if self._trace is None:
            return None
        carried = {
            name: headers[name.encode()].decode("latin-1")
            for name in _CARRIED
            if name.encode() in headers
        }
        kind = self._trace.SpanKind.SERVER
        return self._tracer.start_span(
            "request", context=self._propagate.extract(carried), kind=kind
        )

    def end(self, span: Any, entry: Entry) -> None:
        """End a span, with the attributes of its log entry."""
        if span is None:
            return
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
