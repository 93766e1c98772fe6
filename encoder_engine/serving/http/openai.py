"""The routes of OpenAI: ``/v1/embeddings`` and ``/v1/models``."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from encoder_engine.serving.http.context import decode, texts_of
from encoder_engine.serving.http.messages import Embeddings
from encoder_engine.serving.http.replies import Reply, dump, embedding_pieces, reply_of

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context

__all__ = ["embeddings", "models"]


async def embeddings(body: bytes, context: Context) -> Reply:
    """Embed texts, as floats or as base64 of little-endian float32."""
    request = decode(body, Embeddings)
    answer = await context.service.embed(
        texts_of(request.input, context, "input"),
        request.model,
        options=context.options(
            truncate=request.truncate,
            prompt_name=request.prompt_name,
            input_type=request.input_type,
            dimensions=request.dimensions,
        ),
        **context.call(priority=request.priority, timeout_ms=request.timeout_ms),
    )
    name = context.service.find(request.model, "embed").name
    usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
    end = dump({"model": name, "usage": usage})[1:]
    items = embedding_pieces(answer.results, encoded=request.encoding_format == "base64")
    return reply_of(chain((b'{"object":"list","data":',), items, (b",", end)), answer)


async def models(_: bytes, context: Context) -> Reply:
    """List the models."""
    data = [
        {"id": name, "object": "model", "created": 0, "owned_by": "encoder-engine"}
        for name in context.service.models
    ]
    return Reply(dump({"object": "list", "data": data}))
