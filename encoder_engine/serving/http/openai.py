"""The routes of OpenAI's API: ``/v1/embeddings`` and ``/v1/models``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.serving.http.context import TOKENS_HINT, check_count, decode, texts_of
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import Embeddings
from encoder_engine.serving.http.replies import Reply, dump, embedding_pieces, reply_of

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context

__all__ = ["embeddings", "model", "models"]


async def embeddings(body: bytes, context: Context) -> Reply:
    """Embed texts, as floats or as base64 of little-endian float32."""
    request = decode(body, Embeddings)
    answer = await context.service.embed(
        _texts_or_ids(request.input, context),
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
    pieces = embedding_pieces(
        answer.results,
        encoded=request.encoding_format == "base64",
        before=b'{"object":"list","data":',
        after=b"," + dump({"model": name, "usage": usage})[1:],
    )
    return reply_of(pieces, answer)


def _texts_or_ids(value: str | list[Any], context: Context) -> list[Any]:
    """Return the texts of ``input``, or an array of ids for each text if the server accepts ids."""
    if isinstance(value, str) or all(isinstance(one, str) for one in value):
        return texts_of(value, context, "input")
    if not context.service.options.accept_token_ids:
        raise RequestError("invalid", f"input must be texts{TOKENS_HINT}", param="input")
    rows = [value] if all(isinstance(one, int) for one in value) else value
    if not all(isinstance(row, list) for row in rows):
        raise RequestError(
            "invalid", "texts and token ids in one list; send them separately", param="input"
        )
    check_count(len(rows), context, "input")
    return [np.array(row, dtype=np.int32) for row in rows]


async def models(_: bytes, context: Context) -> Reply:
    """Answer with the list of all served models."""
    data = [_entry(name) for name in context.service.models]
    return Reply(dump({"object": "list", "data": data}))


async def model(_: bytes, context: Context) -> Reply:
    """Answer with the description of the model that the request's path names."""
    return Reply(dump(_entry(context.service.find(context.rest).name)))


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "encoder-engine"}
