"""The ASGI application of a service.

Paths are fixed, so a table finds the endpoint. A client that goes away cancels its request: what
waits of it is never computed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_engine.serving.http import cohere, openai, tei
from encoder_engine.serving.http.access import AccessLog, Entry
from encoder_engine.serving.http.context import Context
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
)
from encoder_engine.serving.http.openapi import write_openapi
from encoder_engine.serving.http.page import page_reply
from encoder_engine.serving.http.replies import Reply, dump
from encoder_engine.serving.metrics import write_metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from encoder_engine.serving.http.faults import Face
    from encoder_engine.serving.http.guard import Headers
    from encoder_engine.serving.service import Service

    Endpoint = Callable[[bytes, Context], Awaitable[Reply]]
    Scope = Mapping[str, Any]

__all__ = ["App", "Route", "asgi_app"]

# The status that servers log for a client that went away; nobody gets it.
CLIENT_GONE = 499


class Route(NamedTuple):
    """An endpoint, and how its errors are written; ``open``: without a key."""

    endpoint: Endpoint
    face: Face
    reads: bool = True
    open: bool = False


def asgi_app(
    service: Service,
    *,
    keys: Keys | None = None,
    limits: Limits | None = None,
    cors_origins: tuple[str, ...] = (),
    page: bool = True,
    access_log: AccessLog | None = None,
) -> Any:
    """Return a service as an ASGI application, which starts and stops it.

    keys: who may ask; None: everyone.
    limits: sizes and times of bodies, and allowed hosts.
    cors_origins: origins whose pages may ask.
    page: ``GET /`` is a page for browsers.
    """
    app = App(
        service,
        keys=Keys() if keys is None else keys,
        limits=Limits() if limits is None else limits,
        page=page,
        access_log=AccessLog() if access_log is None else access_log,
    )
    if not cors_origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app, allow_origins=list(cors_origins), allow_methods=["*"], allow_headers=["*"]
    )


class App:
    """See :func:`asgi_app`."""

    def __init__(
        self, service: Service, *, keys: Keys, limits: Limits, page: bool, access_log: AccessLog
    ) -> None:
        self.service = service
        self._keys, self._limits, self._log = keys, limits, access_log
        self._bodies = BodyReader(limits)
        self.routes = self._routes(page=page)

    def _routes(self, *, page: bool) -> dict[tuple[str, str], Route]:
        posts: dict[str, tuple[Endpoint, Face]] = {
            "/v1/embeddings": (openai.embeddings, "openai"),
            "/embeddings": (openai.embeddings, "openai"),
            "/v1/rerank": (cohere.rerank, "openai"),
            "/v2/rerank": (cohere.rerank, "openai"),
            "/rerank": (_either_rerank, "tei"),
            "/embed": (tei.embed, "tei"),
            "/embed_all": (tei.embed_all, "tei"),
            "/embed_sparse": (tei.embed_sparse, "tei"),
            "/predict": (tei.predict, "tei"),
            "/similarity": (tei.similarity, "tei"),
            "/tokenize": (tei.tokenize, "tei"),
            "/decode": (tei.decode_ids, "tei"),
            "/": (_own_task, "tei"),
            "/invocations": (_own_task, "tei"),
        }
        found = {("POST", path): Route(*pair) for path, pair in posts.items()}
        gets: dict[str, tuple[Endpoint, Face]] = {
            "/v1/models": (openai.models, "openai"),
            "/info": (tei.info, "tei"),
            "/metrics": (_metrics, "tei"),
            "/openapi.json": (self._openapi, "tei"),
        }
        for path, pair in gets.items():
            found["GET", path] = Route(*pair, reads=False)
        for path in ("/health", "/ping", "/health/ready"):
            found["GET", path] = Route(_ready, "tei", reads=False, open=True)
        found["GET", "/health/live"] = Route(_alive, "tei", reads=False, open=True)
        found["GET", "/"] = Route(page_reply if page else _ready, "tei", reads=False, open=True)
        return found

    async def _openapi(self, _: bytes, __: Context) -> Reply:
        return Reply(dump(write_openapi(list(self.routes))))

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
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Any, send: Any) -> None:
        start = time.monotonic()
        headers = headers_of(scope)
        request_id = headers.get(b"x-request-id", b"")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex.encode()
        route = self.routes.get((scope["method"], scope["path"]))
        face: Face = "tei" if route is None else route.face
        client, kind = "", "ok"
        try:
            client, reply = await self._answer(scope, receive, headers, route)
            status = reply.status
        except DisconnectError:
            self._note(Entry(request_id, scope, client, CLIENT_GONE, "cancelled", start))
            return
        except Exception as error:
            fault: Fault = describe(error, face)
            kind, status = fault.kind, fault.status
            if kind == "failed":
                self._log.failure(request_id, error)
            reply = Reply(fault.body, fault.headers, status=status)
        closing = ((b"connection", b"close"),) if self.service.draining else ()
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", reply.media_type),
                    (b"content-length", str(len(reply.body)).encode()),
                    (b"x-request-id", request_id),
                    *reply.headers,
                    *closing,
                ],
            }
        )
        await send({"type": "http.response.body", "body": reply.body})
        self._note(Entry(request_id, scope, client, status, kind, start))

    def _note(self, entry: Entry) -> None:
        signals = self.service.signals
        path = entry.path if (entry.method, entry.path) in self.routes else "other"
        signals.requests[path, entry.status] += 1
        signals.request_seconds.observe(time.monotonic() - entry.start)
        self._log.add(entry)

    async def _answer(
        self, scope: Scope, receive: Any, headers: Headers, route: Route | None
    ) -> tuple[str, Reply]:
        path = scope["path"]
        if route is None:
            if any(known == path for _, known in self.routes):
                raise RequestError("method", f"{path} does not take {scope['method']}")
            raise RequestError("route", "there is no such path; GET /openapi.json lists them")
        check_host(headers, self._limits)
        name = None if route.open else self._keys.name_of(headers)
        peer = scope.get("client")
        client = name or ("local" if peer is None else f"{peer[0]}:{peer[1]}")
        context = Context(self.service, client, _timeout_of(headers))
        if not route.reads:
            accept = headers.get(b"accept", b"")
            return client, await route.endpoint(accept, context)
        check_content_type(headers)
        body = await self._bodies.read(receive, headers)
        return client, await _until_disconnect(route.endpoint(body, context), receive)


async def _until_disconnect(answer: Awaitable[Reply], receive: Any) -> Reply:
    """Await an answer; cancel it where the client goes away."""
    work = asyncio.ensure_future(answer)
    watch = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise DisconnectError
        return work.result()
    finally:
        watch.cancel()
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def _disconnected(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _timeout_of(headers: Headers) -> float | None:
    given = headers.get(b"x-request-timeout-ms")
    if given is None:
        return None
    if not given.isdigit() or not 1 <= int(given) <= 86_400_000:
        raise RequestError("invalid", "x-request-timeout-ms must be 1 to 86400000 milliseconds")
    return int(given) / 1000.0


async def _either_rerank(body: bytes, context: Context) -> Reply:
    """Rerank as TEI does with ``texts``, as Cohere does with ``documents``."""
    if b'"documents"' in body and b'"texts"' not in body:
        return await cohere.rerank(body, context)
    return await tei.rerank(body, context)


async def _own_task(body: bytes, context: Context) -> Reply:
    """Do the first task of the first model, as Hugging Face's clients ask for at ``/``."""
    endpoints: dict[str, Endpoint] = {
        "embed": tei.embed,
        "sparse": tei.embed_sparse,
        "tokens": tei.embed_all,
        "rank": tei.rerank,
        "classify": tei.predict,
    }
    return await endpoints[context.service.find(None).tasks[0]](body, context)


async def _ready(_: bytes, context: Context) -> Reply:
    return Reply(b"", media_type=b"text/plain", status=200 if context.service.ready else 503)


async def _alive(_: bytes, context: Context) -> Reply:
    status = 200 if context.service.illness() is None else 503
    return Reply(b"", media_type=b"text/plain", status=status)


async def _metrics(_: bytes, context: Context) -> Reply:
    body, media_type = write_metrics(context.service)
    return Reply(body, media_type=media_type.encode())
