"""The routes of Cohere's API; Jina's rerank uses the same format."""

from __future__ import annotations

import time
import uuid
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.serving.http.context import check_count, decode
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import CohereEmbed, CohereRerank
from encoder_engine.serving.http.replies import Reply, base64_pieces, dump, matrix_pieces, reply_of
from encoder_engine.serving.request import size_of
from encoder_engine.serving.tasks import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.serving.http.context import Context
    from encoder_engine.text import Tokenizer

__all__ = ["cut_documents", "embed", "embed_v1", "rerank"]


async def embed(body: bytes, context: Context) -> Reply:
    """Embed texts as Cohere's version 2 does: lists of vectors by type, by default floats."""
    return await _embed(body, context, ["float"])


async def embed_v1(body: bytes, context: Context) -> Reply:
    """Embed texts as Cohere's version 1 does: a list of vectors, unless types are requested."""
    return await _embed(body, context, None)


async def _embed(body: bytes, context: Context, default: list[str] | None) -> Reply:
    request = decode(body, CohereEmbed)
    check_count(len(request.texts), context, "texts")
    kind = (request.input_type or "").removeprefix("search_")
    sides = {"START": "left", "END": "right"}
    try:
        answer = await context.service.embed(
            request.texts,
            request.model,
            options=context.options(
                truncate=None if request.truncate is None else request.truncate != "NONE",
                direction=sides.get(request.truncate or ""),
                # A model has no prompt of its own for the other kinds.
                input_type=kind if kind in ("query", "document") else None,
                dimensions=request.output_dimension,
            ),
            **context.call(priority=request.priority),
        )
    except OptionError as error:
        if error.param != "dimensions":
            raise
        name = "output_dimension"
        raise RequestError("invalid", str(error).replace(error.param, name), param=name) from None
    vectors, types = answer.results, request.embedding_types or default
    after = {
        "id": str(uuid.uuid4()),
        "texts": request.texts,
        "response_type": "embeddings_by_type" if types else "embeddings_floats",
        "meta": {
            "api_version": {"version": "2" if default else "1"},
            "billed_units": {"input_tokens": answer.num_tokens},
        },
    }
    end = b"," + dump(after)[1:]
    if not types:
        return reply_of(matrix_pieces(vectors, b'{"embeddings":', end), answer)
    pieces: list[Iterator[bytes]] = []
    for number, name in enumerate(dict.fromkeys(types)):
        before = b'%b"%b":' % (b"," if number else b'{"embeddings":{', name.encode())
        written = base64_pieces if name == "base64" else matrix_pieces
        pieces.append(written(vectors, before, b""))
    return reply_of(chain(*pieces, (b"}" + end,)), answer)


async def rerank(body: bytes, context: Context) -> Reply:
    """Score documents for a query: the best ``top_n``, best first."""
    request = decode(body, CohereRerank)
    check_count(len(request.documents), context, "documents")
    for name in ("max_chunks_per_doc", "rank_fields"):
        if getattr(request, name) is not None:
            raise RequestError(
                "invalid",
                f"{name} is not supported: a document is its text; leave it out",
                param=name,
            )
    documents = [one if isinstance(one, str) else one.text for one in request.documents]
    served = context.service.find(request.model, "rank")
    served.check_task("rank")
    texts, cut = documents, list[int]()
    call = context.call(priority=request.priority)
    if request.max_tokens_per_doc is not None:
        seconds, start = context.timeout or context.service.options.timeout, time.monotonic()
        texts, cut = await context.service.run_aside(
            partial(cut_documents, served.tokenizer, documents, request.max_tokens_per_doc),
            num_bytes=sum(map(size_of, documents)),
            timeout=seconds,
        )
        call["timeout"] = seconds - (time.monotonic() - start)
    answer = await context.service.rank(
        request.query, texts, request.model, options=context.options(truncate=None), **call
    )
    answer = answer._replace(truncated=tuple(sorted({*answer.truncated, *cut})))
    results: list[dict[str, Any]] = []
    for index in np.argsort(-answer.results, kind="stable")[: request.top_n].tolist():
        row: dict[str, Any] = {"index": index, "relevance_score": answer.results[index]}
        if request.return_documents:
            row["document"] = {"text": documents[index]}
        results.append(row)
    usage = {"total_tokens": answer.num_tokens, "prompt_tokens": answer.num_tokens}
    reply = {
        "id": str(uuid.uuid4()),
        "object": "list",
        "model": served.name,
        "results": results,
        "usage": usage,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }
    return reply_of(dump(reply), answer)


def cut_documents(tokenizer: Tokenizer, texts: list[str], most: int) -> tuple[list[str], list[int]]:
    """Truncate texts to at most ``most`` tokens; return them, and the indices of truncated ones.

    The tokenizer's files state the side, left or right, that is truncated.
    """
    found = tokenizer.encode_batch(
        texts, add_special_tokens=False, max_length=most, return_offsets=True, num_threads=1
    )
    cut, kept = np.flatnonzero(found.truncated).tolist(), list(texts)
    left = tokenizer.spec.truncation_side == "left"
    for row in cut:
        first, last = found.cu_seqlens[row], found.cu_seqlens[row + 1] - 1
        begin, end = found.offsets[first, 0], found.offsets[last, 1]
        kept[row] = texts[row][begin:] if left else texts[row][:end]
    return kept, cut
