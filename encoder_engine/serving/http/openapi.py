"""The OpenAPI description of the routes, generated from the types of bodies and answers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from msgspec.json import schema_components

from encoder_engine.serving.http import messages
from encoder_engine.serving.http.answers import ANSWERS, OpenAIFault, TeiFault
from encoder_engine.serving.http.faults import statuses_of
from encoder_engine.serving.http.replies import NPY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.serving.http.faults import Face

__all__ = ["write_openapi"]

_BODIES: dict[str, tuple[type, ...]] = {
    "/v1/embeddings": (messages.Embeddings,),
    "/embeddings": (messages.Embeddings,),
    "/v1/embed": (messages.CohereEmbed,),
    "/v2/embed": (messages.CohereEmbed,),
    "/v1/rerank": (messages.CohereRerank,),
    "/v2/rerank": (messages.CohereRerank,),
    "/rerank": (messages.Rerank, messages.CohereRerank),
    "/embed": (messages.EmbedTexts,),
    "/embed_all": (messages.EmbedAll,),
    "/embed_sparse": (messages.EmbedSparse,),
    "/predict": (messages.Predict,),
    "/similarity": (messages.Similarity,),
    "/models/{model}": (messages.PipelineCall,),
    "/tokenize": (messages.Tokenize,),
    "/decode": (messages.Decode,),
}
# The bodies of the routes that run the first model's own task.
_OWN = (
    messages.EmbedTexts,
    messages.EmbedAll,
    messages.EmbedSparse,
    messages.Rerank,
    messages.Predict,
    messages.PipelineCall,
    messages.Similarity,
)
# Answers that are not JSON.
_TEXTS = {"/metrics": ("text/plain",), "/docs": ("text/html",), "/": ("text/html", "text/plain")}
_PROBES = ("/health", "/ping", "/health/ready", "/health/live")
_HEADERS = (
    ("x-request-id", {"type": "string"}),
    ("x-request-timeout-ms", {"type": "integer", "minimum": 1, "maximum": 86_400_000}),
)


class _Schemas:
    """The JSON schemas of the types of request and response bodies.

    A schema of a class is a reference (``$ref``) into ``components``, which has the definitions.
    """

    def __init__(self) -> None:
        kinds = {kind for found in (_BODIES, ANSWERS) for row in found.values() for kind in row}
        self._kinds = sorted((*kinds, *_OWN, OpenAIFault, TeiFault), key=str)
        self._schemas, self.components = schema_components(
            self._kinds, ref_template="#/components/schemas/{name}"
        )

    def of(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        """Return the schema of a value that has any one of these types."""
        found = [self._schemas[self._kinds.index(kind)] for kind in kinds]
        return found[0] if len(found) == 1 else {"anyOf": found}


def write_openapi(
    routes: Mapping[tuple[str, str], Face], *, open_paths: frozenset[str], keyed: bool
) -> dict[str, Any]:
    """Return the description of routes, as OpenAPI 3.1.

    routes: the format of a route's errors, by method and path.
    open_paths: GET routes that need no key.
    keyed: routes other than ``open_paths`` need a key.
    """
    schemas = _Schemas()
    paths: dict[str, Any] = {}
    for (method, path), face in routes.items():
        operation: dict[str, Any] = {
            "operationId": f"{method.lower()} {path}",
            "parameters": [
                {"name": name, "in": "header", "required": False, "schema": schema}
                for name, schema in _HEADERS
            ],
            "responses": _responses(schemas, method, path, face),
        }
        if path.endswith("{model}"):
            named = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"].append(named)
        if method == "POST":
            body = {"application/json": {"schema": schemas.of(_BODIES.get(path, _OWN))}}
            operation["requestBody"] = {"required": True, "content": body}
        if keyed and (method == "POST" or path not in open_paths):
            operation["security"] = [{"key": []}]
        paths.setdefault(path, {})[method.lower()] = operation
    components: dict[str, Any] = {"schemas": schemas.components}
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "encoder-engine", "version": sys.modules["encoder_engine"].__version__},
        "paths": paths,
        "components": components,
    }


def _responses(schemas: _Schemas, method: str, path: str, face: Face) -> dict[str, Any]:
    fault = schemas.of((OpenAIFault if face == "openai" else TeiFault,))
    errors = {
        str(status): {
            "description": "An error.",
            "content": {"application/json": {"schema": fault}},
        }
        for status in statuses_of(face, reads=method == "POST", named=path.endswith("{model}"))
    }
    if method == "GET" and (path in _PROBES or path == "/"):
        errors["503"] = {"description": "Not ready.", "content": {"text/plain": {}}}
    return {"200": _answer(schemas, method, path), **errors}


def _answer(schemas: _Schemas, method: str, path: str) -> dict[str, Any]:
    if method == "GET" and path in _PROBES:
        media: dict[str, Any] = {"text/plain": {}}
    elif method == "GET" and path in _TEXTS:
        media = {kind: {"schema": {"type": "string"}} for kind in _TEXTS[path]}
    elif path == "/openapi.json":
        media = {"application/json": {"schema": {"type": "object"}}}
    else:
        media = {"application/json": {"schema": schemas.of(ANSWERS[path])}}
    if path == "/embed":
        media[NPY.decode()] = {}
    return {"description": "The answer.", "content": media}
