"""Requests are spans in their callers' traces, and no text is in them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from encoder_engine.serving.http import tracing
from encoder_engine.serving.http.guard import Keys
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder

pytestmark = pytest.mark.slow
CANARY = "xylophonecanary"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


def test_requests_are_spans_in_their_callers_traces(
    tiny: Embedder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    sdk: Any = import_module("opentelemetry.sdk.trace")
    export: Any = import_module("opentelemetry.sdk.trace.export")
    memory: Any = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    trace: Any = import_module("opentelemetry.trace")
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    keys, headers = Keys.read("me:secret\n"), PARENT | {"authorization": "secret"}
    headers |= {"tracestate": f"{CANARY} = a", "baggage": f"{CANARY};;,{CANARY}"}
    with (
        Server(Service({"tiny": tiny}), keys=keys) as server,
        httpx.Client(base_url=server.url, headers=headers) as client,
    ):
        client.post("/embed", json={"inputs": CANARY}, headers={"x-request-id": "mine"})
        client.post("/embed", json={"inputs": [CANARY, 3]})
        client.post(f"/{CANARY}?{CANARY}", json={"inputs": CANARY})
        client.request(CANARY.upper(), f"/{CANARY}")
    spans = list(exporter.get_finished_spans())
    assert [span.name for span in spans] == ["POST /embed", "POST /embed", "POST other"]
    assert all(f"{span.context.trace_id:032x}" == TRACE for span in spans)
    right, wrong, _ = (span.attributes for span in spans)
    assert right["http.response.status_code"] == 200
    assert (right["encoder_engine.client"], right["encoder_engine.request_id"]) == ("me", "mine")
    assert (wrong["http.response.status_code"], wrong["error.type"]) == (422, "invalid")
    assert not any(CANARY in span.to_json().lower() for span in spans)
    assert CANARY not in caplog.text


def test_the_state_of_a_callers_trace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    sdk: Any = import_module("opentelemetry.sdk.trace")
    trace: Any = import_module("opentelemetry.trace")
    headers = {name.encode(): value.encode() for name, value in PARENT.items()}
    headers[b"tracestate"] = b"a=b, vendor@one=c d"
    assert tracing.Tracing().begin(headers) is None
    provider = sdk.TracerProvider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    span = tracing.Tracing().begin(headers)
    assert dict(span.get_span_context().trace_state) == {"a": "b", "vendor@one": "c d"}


def test_nothing_is_traced_without_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = tracing.Tracing()
    assert found.begin({b"traceparent": b"00-1-1-01"}) is None
