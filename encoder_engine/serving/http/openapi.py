"""The OpenAPI description of the routes, from the structs that decode their bodies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from msgspec.json import schema_components

from encoder_engine.serving.http import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["write_openapi"]

_BODIES: dict[str, tuple[type, ...]] = {
    "/v1/embeddings": (messages.Embeddings,),
    "/embeddings": (messages.Embeddings,),
    "/v1/rerank": (messages.CohereRerank,),
    "/v2/rerank": (messages.CohereRerank,),
    "/rerank": (messages.Rerank, messages.CohereRerank),
    "/embed": (messages.EmbedTexts,),
    "/embed_all": (messages.EmbedAll,),
    "/embed_sparse": (messages.EmbedSparse,),
    "/predict": (messages.Predict,),
    "/similarity": (messages.Similarity,),
    "/tokenize": (messages.Tokenize,),
    "/decode": (messages.Decode,),
}
_OWN = (messages.EmbedTexts, messages.Rerank, messages.Predict)
# The statuses that any route may answer with.
_FAULTS = {
    "POST": ("400", "401", "403", "404", "408", "413", "415", "422", "424", "429", "431", "500",
             "503", "504"),
    "GET": ("401", "403", "503"),
}  # fmt: skip


def write_openapi(routes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the description of routes, by method and path, as OpenAPI 3.1."""
    kinds = sorted({kind for kinds in _BODIES.values() for kind in kinds}, key=lambda k: k.__name__)
    schemas, components = schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Any] = {}
    for method, path in routes:
        operation: dict[str, Any] = {
            "operationId": f"{method.lower()} {path}",
            "responses": {
                "200": {"description": "The answer."},
                **{status: {"description": "An error."} for status in _FAULTS[method]},
            },
        }
        if method == "POST":
            found = [schema_of[kind] for kind in _BODIES.get(path, _OWN)]
            schema = found[0] if len(found) == 1 else {"anyOf": found}
            body = {"application/json": {"schema": schema}}
            operation["requestBody"] = {"required": True, "content": body}
        paths.setdefault(path, {})[method.lower()] = operation
    version = sys.modules["encoder_engine"].__version__
    return {
        "openapi": "3.1.0",
        "info": {"title": "encoder-engine", "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }
