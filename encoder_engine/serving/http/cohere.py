"""The rerank routes of Cohere and Jina."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.serving.http.context import check_count, decode
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import CohereRerank
from encoder_engine.serving.http.replies import Reply, dump, reply_of

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context

__all__ = ["rerank"]


async def rerank(body: bytes, context: Context) -> Reply:
    """Score documents for a query: the best ``top_n``, best first."""
    request = decode(body, CohereRerank)
    check_count(len(request.documents), context, "documents")
    for name in ("max_tokens_per_doc", "max_chunks_per_doc", "rank_fields"):
        if getattr(request, name) is not None:
            raise RequestError(
                "invalid",
                f"{name} is not supported: a document is its text, cut at the model's own limit; "
                "leave it out",
                param=name,
            )
    documents = [one if isinstance(one, str) else one.text for one in request.documents]
    answer = await context.service.rank(
        request.query,
        documents,
        request.model,
        options=context.options(truncate=None),
        **context.call(priority=request.priority),
    )
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
        "model": context.service.find(request.model, "rank").name,
        "results": results,
        "usage": usage,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }
    return reply_of(dump(reply), answer)
