"""The ASGI application of a service.

Paths are fixed, so the endpoint is looked up in a table. A client that disconnects cancels its
request, and the request's waiting texts are not computed.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from encoder_engine.serving.http import cohere, inference, openai, tei, tokens
from encoder_engine.serving.http.access import AccessLog, Entry
from encoder_engine.serving.http.context import Context, decode
from encoder_engine.serving.http.disconnect import Watch
from encoder_engine.serving.http.faults import Fault, RequestError, describe
from encoder_engine.serving.http.guard import (
    REQUEST_ID,
    BodyReader,
    DisconnectError,
    Keys,
    Limits,
    check_content_type,
    check_host,
    headers_of,
    timeout_of,
)
from encoder_engine.serving.http.openapi import write_openapi
from encoder_engine.serving.http.page import docs_reply, page_reply
from encoder_engine.serving.http.replies import Reply, dump
from encoder_engine.serving.http.tracing import Tracing
from encoder_engine.serving.metrics import write_metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from encoder_engine.serving.http.faults import Face
    from encoder_engine.serving.http.guard import Headers
    from encoder_engine.serving.service import Service

    Endpoint = Callable[[bytes, Context], Awaitable[Reply]]
    Scope = Mapping[str, Any]

__all__ = ["App", "Route", "asgi_app"]

# The least bytes of a long answer that are sent at once: the buffer of a connection.
PIECE_BYTES = 65_536
EXPOSED_HEADERS = (
    "x-request-id",
    "x-truncated",
    "x-compute-tokens",
    "x-compute-characters",
    "x-total-time",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
    "retry-after",
    "retry-after-ms",
)
# The status that servers log for a client that went away; nobody gets it.
CLIENT_GONE = 499
# The kinds of errors of requests that are refused because of the load.
REFUSALS = ("overloaded", "busy")
# The id of a request is random for the process, then counted: a random one for each takes 5 us.
_PROCESS_ID, _NUMBERS = secrets.token_hex(8).encode(), itertools.count()
# Routes that need the tokenizer alone.
TOKENIZER_PATHS = ("/tokenize", "/decode")
MODEL_PATH = "/v1/models/{model}"
CALL_PATH = "/models/{model}"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Route(NamedTuple):
    """What answers requests to a path, and properties of these requests and of their errors.

    endpoint: the function that answers.
    face: the API (OpenAI, TEI, ...) whose format its errors have.
    reads: its requests have a body.
    computes: a model computes the answer; while the queue is full, requests are refused unread.
    open: it needs no key.
    probe: it accepts any ``Host``, since Kubernetes sends the address of the pod.
    """

    endpoint: Endpoint
    face: Face
    reads: bool = True
    computes: bool = False
    open: bool = False
    probe: bool = False


def asgi_app(
    service: Service,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    cors_origins: tuple[str, ...] = (),
    page: bool = True,
    metrics_public: bool = False,
    access_log: AccessLog | None = None,
) -> Any:
    """Return a service as an ASGI application, which starts and stops it.

    keys: the clients that may send requests; None: everyone.
    limits: sizes and times of bodies, and allowed hosts.
    cors_origins: origins whose pages may send requests.
    page: ``GET /`` is a page for browsers.
    metrics_public: ``GET /metrics`` needs no key, and accepts any ``Host``.
    access_log: the log of finished requests; None: only those with a status of 500 or more.
    """
    app = App(
        service,
        keys=Keys() if keys is None else keys,
        limits=Limits() if limits is None else limits,
        page=page,
        metrics_public=metrics_public,
        access_log=AccessLog() if access_log is None else access_log,
    )
    if not cors_origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=list(cors_origins),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED_HEADERS,
    )


class App:
    """The ASGI application that :func:`asgi_app` returns."""

    def __init__(
        self,
        service: Service,
        *,
        keys: Keys,
        limits: Limits,
        page: bool,
        metrics_public: bool,
        access_log: AccessLog,
    ) -> None:
        self.service = service
        self._keys, self._limits, self._log = keys, limits, access_log
        self._bodies = BodyReader(limits)
        self._tracing = Tracing()
        self.routes = self._routes(page=page, metrics_public=metrics_public)
        # The reason why the service did not start.
        self.start_error: Exception | None = None

    def _routes(self, *, page: bool, metrics_public: bool) -> dict[tuple[str, str], Route]:
        posts: dict[str, tuple[Endpoint, Face]] = {
            "/v1/embeddings": (openai.embeddings, "openai"),
            "/embeddings": (openai.embeddings, "openai"),
            "/v1/embed": (cohere.embed_v1, "openai"),
            "/v2/embed": (cohere.embed, "openai"),
            "/v1/rerank": (cohere.rerank, "openai"),
            "/v2/rerank": (cohere.rerank, "openai"),
            "/rerank": (_either_rerank, "tei"),
            "/embed": (tei.embed, "tei"),
            "/embed_all": (tei.embed_all, "tei"),
            "/embed_sparse": (tei.embed_sparse, "tei"),
            "/predict": (tei.predict, "tei"),
            "/similarity": (tei.similarity, "tei"),
            "/tokenize": (tokens.tokenize, "tei"),
            "/decode": (tokens.decode_ids, "tei"),
            "/": (_own_task, "tei"),
            "/invocations": (_own_task, "tei"),
            CALL_PATH: (inference.call, "tei"),
        }
        found = {
            ("POST", path): Route(*pair, computes=path not in TOKENIZER_PATHS)
            for path, pair in posts.items()
        }
        gets: dict[str, tuple[Endpoint, Face]] = {
            "/v1/models": (openai.models, "openai"),
            MODEL_PATH: (openai.model, "openai"),
            "/info": (tei.info, "tei"),
            "/metrics": (_metrics, "tei"),
            "/openapi.json": (self._openapi, "tei"),
            "/docs": (self._docs, "tei"),
        }
        for path, pair in gets.items():
            found["GET", path] = Route(*pair, reads=False)
        if metrics_public:
            found["GET", "/metrics"] = Route(_metrics, "tei", reads=False, open=True, probe=True)
        for path in ("/health", "/ping", "/health/ready"):
            found["GET", path] = Route(_ready, "tei", reads=False, open=True, probe=True)
        found["GET", "/health/live"] = Route(_alive, "tei", reads=False, open=True, probe=True)
        found["GET", "/"] = Route(page_reply if page else _ready, "tei", reads=False, open=True)
        return found

    async def _openapi(self, _: bytes, __: Context) -> Reply:
        return Reply(dump(self._description()))

    async def _docs(self, _: bytes, __: Context) -> Reply:
        return docs_reply(self._description())

    def _description(self) -> dict[str, Any]:
        return write_openapi(
            {name: route.face for name, route in self.routes.items()},
            open_paths=frozenset(path for (_, path), route in self.routes.items() if route.open),
            keyed=bool(self._keys.names),
        )

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer a request, or start and stop the service."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            raise RuntimeError(f"{scope['type']} is not supported; the service speaks HTTP")

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            await self.service.start()
        except Exception as error:
            self.start_error = error
            await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.stop()
        self._log.flush()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Any, send: Any) -> None:
        watch, began = Watch(receive), time.monotonic()
        headers = headers_of(scope)
        request_id = headers.get(b"x-request-id", b"")
        if not request_id or not REQUEST_ID.fullmatch(request_id):
            request_id = b"%b-%x" % (_PROCESS_ID, next(_NUMBERS))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path, rest = _named(scope["path"])
        route = self.routes.get((method, path))
        name, kind, status = "", "ok", 200
        span = self._tracing.begin(headers)
        try:
            try:
                name = self._caller(path, headers, route)
                # Some servers give a list, which cannot be a key of a dict.
                flow = name or tuple(scope.get("client") or ())
                accept = headers.get(b"accept", b"")
                context = Context(self.service, flow, timeout_of(headers), accept, rest)
                assert route is not None
                if route.reads:
                    check_content_type(headers)
                    if route.computes:
                        self.service.admission.check_queue(flow)
                    reserved = await self._bodies.reserve(headers)
                    try:
                        body = await self._bodies.read(receive)
                        watch.start()
                        reply = await route.endpoint(body, context)
                        del body
                    finally:
                        self._bodies.release(reserved)
                else:
                    reply = await route.endpoint(b"", context)
            except (DisconnectError, asyncio.CancelledError):
                raise
            except Exception as error:
                fault: Fault = describe(error, "tei" if route is None else route.face)
                kind = fault.kind
                if kind == "failed":
                    self._log.failure(request_id, error)
                reply = Reply(fault.body, fault.headers, status=fault.status)
            status = reply.status
            await self._send(reply, request_id, send)
        except DisconnectError:
            kind, status = "cancelled", CLIENT_GONE
        except asyncio.CancelledError:
            kind, status = "cancelled", CLIENT_GONE
            if not watch.gone:
                raise
        finally:
            watch.stop()
            entry = Entry(request_id, method, path, name, status, kind, began)
            self._note(entry, known=route is not None)
            if span is not None:
                self._tracing.end(span, entry)

    async def _send(self, reply: Reply, request_id: bytes, send: Any) -> None:
        """Send a reply; a long one in pieces, as fast as the client reads them."""
        body = reply.body
        headers = [
            (b"content-type", reply.media_type),
            (b"x-request-id", request_id),
            *reply.headers,
        ]
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
        if self.service.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if isinstance(body, bytes):
            await send({"type": "http.response.body", "body": body})
            return
        self.service.admission.answer_bytes += reply.num_bytes
        try:
            parts: list[bytes] = []
            size_bytes = 0
            for piece in body:
                parts.append(piece)
                size_bytes += len(piece)
                if size_bytes >= PIECE_BYTES:
                    message = {"type": "http.response.body", "body": b"".join(parts)}
                    await send(message | {"more_body": True})
                    await asyncio.sleep(0)
                    parts, size_bytes = [], 0
            await send({"type": "http.response.body", "body": b"".join(parts)})
        finally:
            self.service.admission.answer_bytes -= reply.num_bytes

    def _note(self, entry: Entry, *, known: bool) -> None:
        signals = self.service.signals
        if not known:
            # Unknown methods and paths are the caller's words: they are not logged.
            entry.method = entry.method if entry.method in METHODS else "other"
            entry.path = "other"
        signals.requests[entry.path, entry.status, entry.client] += 1
        seconds = time.monotonic() - entry.start
        signals.request_seconds.observe(seconds)
        if entry.kind in REFUSALS:
            signals.refusal_seconds.observe(seconds)
        self._log.add(entry)

    def _caller(self, path: str, headers: Headers, route: Route | None) -> str:
        """Check a request's route, host and key; return the client's name, "" without keys."""
        if route is None:
            methods = [method for method, known in self.routes if known == path]
            if methods:
                allow = ", ".join((*methods, "HEAD") if "GET" in methods else methods)
                # The method is the caller's word, and not repeated.
                raise RequestError("method", f"this path takes {allow}", allow=allow)
            raise RequestError("route", "there is no such path; GET /openapi.json lists them")
        if not route.probe:
            check_host(headers, self._limits)
            if self.service.signals.connections > self._limits.max_connections:
                self.service.signals.rejected["connections"] += 1
                raise RequestError("busy", "too many connections; try again later")
        return "" if route.open else self._keys.name_of(headers) or ""


def _named(path: str) -> tuple[str, str]:
    """Return a request path's route, such as "/v1/models/{model}", and the model's name in it.

    A path without a model name is its own route; the name is then empty.
    """
    for named in (MODEL_PATH, CALL_PATH):
        start = named.partition("{")[0]
        if path.startswith(start):
            return named, path[len(start) :]
    return path, ""


class _RerankKeys(Struct):
    documents: Raw | UnsetType = UNSET
    texts: Raw | UnsetType = UNSET


class _OwnKeys(Struct):
    inputs: Raw | UnsetType = UNSET


async def _either_rerank(body: bytes, context: Context) -> Reply:
    """Rerank: a body with ``texts`` is of TEI's API, one with ``documents`` of Cohere's."""
    keys = decode(body, _RerankKeys)
    if keys.documents is not UNSET and keys.texts is UNSET:
        return await cohere.rerank(body, context)
    return await tei.rerank(body, context)


async def _own_task(body: bytes, context: Context) -> Reply:
    """Run the first model's first task, as Hugging Face's clients expect at ``/``.

    An embedder returns similarities if ``inputs`` is an object of one sentence and several others;
    a ranker answers ``inputs`` as ``/predict`` does.
    """
    endpoints: dict[str, Endpoint] = {
        "embed": tei.embed,
        "sparse": tei.embed_sparse,
        "tokens": tei.embed_all,
        "rank": tei.rerank,
        "classify": tei.predict,
        "predict": inference.call,
    }
    task = context.service.find(None).tasks[0]
    keys = decode(body, _OwnKeys)
    if isinstance(keys.inputs, Raw):
        if task == "embed" and bytes(keys.inputs).lstrip()[:1] == b"{":
            return await tei.similarity(body, context)
        if task == "rank":
            return await tei.predict(body, context)
    return await endpoints[task](body, context)


async def _ready(_: bytes, context: Context) -> Reply:
    return Reply(b"", media_type=b"text/plain", status=200 if context.service.ready else 503)


async def _alive(_: bytes, context: Context) -> Reply:
    status = 200 if context.service.stall_reason() is None else 503
    return Reply(b"", media_type=b"text/plain", status=status)


async def _metrics(_: bytes, context: Context) -> Reply:
    body, media_type = write_metrics(context.service)
    return Reply(body, media_type=media_type.encode())
