"""The rerank routes of Cohere and Jina."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.serving.http.context import check_count, decode
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import CohereRerank
from encoder_engine.serving.http.replies import Reply, dump, reply_of
from encoder_engine.serving.request import size_of

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context
    from encoder_engine.text import Tokenizer

__all__ = ["rerank"]


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
    if request.max_tokens_per_doc is not None:
        texts, cut = await context.service.run_aside(
            partial(_cut, served.tokenizer, documents, request.max_tokens_per_doc),
            num_bytes=sum(map(size_of, documents)),
            timeout=context.timeout,
        )
    answer = await context.service.rank(
        request.query,
        texts,
        request.model,
        options=context.options(truncate=None),
        **context.call(priority=request.priority),
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


def _cut(tokenizer: Tokenizer, texts: list[str], most: int) -> tuple[list[str], list[int]]:
    """Return texts cut behind a number of tokens, and the numbers of those that were cut."""
    found = tokenizer.encode_batch(
        texts, add_special_tokens=False, max_length=most, return_offsets=True, num_threads=1
    )
    cut = np.flatnonzero(found.truncated).tolist()
    ends = dict(zip(cut, found.offsets[found.cu_seqlens[1:][cut] - 1, 1].tolist(), strict=True))
    return [text[: ends.get(row, len(text))] for row, text in enumerate(texts)], cut
