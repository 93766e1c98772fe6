"""The routes of Text Embeddings Inference (TEI)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.packing.module_stack import SCORE_FUNCTIONS
from encoder_engine.serving.http.context import check_count, decode, texts_of
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import (
    EmbedAll,
    EmbedSparse,
    EmbedTexts,
    Predict,
    Rerank,
    Similarity,
    SimilarityParameters,
)
from encoder_engine.serving.http.replies import (
    NPY,
    Reply,
    dump,
    list_pieces,
    matrix_pieces,
    npy_pieces,
    reply_of,
    token_pieces,
)

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context
    from encoder_engine.serving.tasks import Text

__all__ = ["embed", "embed_all", "embed_sparse", "info", "predict", "rerank", "similarity"]


async def embed(body: bytes, context: Context) -> Reply:
    """Embed texts: a list of vectors, even for a single text."""
    request = decode(body, EmbedTexts)
    answer = await context.service.embed(
        texts_of(request.inputs, context, "inputs"),
        options=context.options(
            truncate=request.truncate,
            direction=request.truncation_direction,
            prompt_name=request.prompt_name,
            normalize=request.normalize is not False,
            dimensions=request.dimensions,
        ),
        **context.call(),
    )
    if NPY in context.accept:
        return reply_of(npy_pieces(answer.results), answer, media_type=NPY)
    return reply_of(matrix_pieces(answer.results), answer)


async def embed_all(body: bytes, context: Context) -> Reply:
    """Embed every token: a list of vectors for each text."""
    request = decode(body, EmbedAll)
    answer = await context.service.tokens(
        texts_of(request.inputs, context, "inputs"),
        options=context.options(
            truncate=request.truncate,
            direction=request.truncation_direction,
            prompt_name=request.prompt_name,
            normalize=request.normalize,
        ),
        **context.call(),
    )
    return reply_of(token_pieces(answer.results), answer)


async def embed_sparse(body: bytes, context: Context) -> Reply:
    """Embed texts to sparse vectors: the index and the value of each non-zero weight."""
    request = decode(body, EmbedSparse)
    answer = await context.service.sparse(
        texts_of(request.inputs, context, "inputs"),
        options=context.options(
            truncate=request.truncate,
            direction=request.truncation_direction,
            prompt_name=request.prompt_name,
        ),
        **context.call(),
    )
    rows = answer.results

    def make(start: int, stop: int) -> list[list[dict[str, Any]]]:
        return [
            [{"index": index, "value": value} for index, value in zip(*row, strict=True)]
            for row in ((indices.tolist(), values) for indices, values in rows[start:stop])
        ]

    # About 250 entries a row: one with its index takes about the bytes of four numbers.
    return reply_of(list_pieces(len(rows), 1000, make), answer)


async def predict(body: bytes, context: Context) -> Reply:
    """Classify a text or a pair: labels, best first; for a batch, a list of such lists."""
    request = decode(body, Predict)
    function = getattr(request.parameters, "function_to_apply", None)
    top_k = getattr(request.parameters, "top_k", None)
    texts, batched = _texts_or_pairs(request.inputs)
    check_count(len(texts), context, "inputs")
    answer = await context.service.classify(
        texts,
        options=context.options(
            truncate=request.truncate,
            direction=request.truncation_direction,
            raw_scores=bool(request.raw_scores) or function is not None,
        ),
        **context.call(),
    )
    labels = context.service.find(None, "classify").labels
    scores = answer.results
    if function in ("sigmoid", "softmax"):
        scores = SCORE_FUNCTIONS[function](scores)
    rows = [
        [{"score": row[number], "label": labels[number]} for number in np.argsort(-row)[:top_k]]
        for row in scores
    ]
    return reply_of(dump(rows if batched else rows[0]), answer)


def _texts_or_pairs(inputs: str | list[str | list[str]]) -> tuple[list[Text], bool]:
    """Return the texts and pairs of ``inputs``, and whether ``inputs`` is a batch of them.

    ``inputs``: a text, a pair ``[a, b]``, or a batch of ``[a]`` and ``[a, b]``.
    """
    if isinstance(inputs, str):
        return [inputs], False
    if all(isinstance(one, str) for one in inputs):
        if len(inputs) != 2:
            raise RequestError(
                "invalid",
                f"a list of {len(inputs)} texts; send a pair as [a, b], a batch as [[a], [b]]",
                param="inputs",
            )
        return [(str(inputs[0]), str(inputs[1]))], False
    rows: list[Text] = []
    for row, one in enumerate(inputs):
        parts = [one] if isinstance(one, str) else one
        if len(parts) not in (1, 2):
            raise RequestError(
                "invalid",
                f"{len(parts)} texts in a row; expected [a] or [a, b]",
                param=f"inputs[{row}]",
            )
        rows.append(parts[0] if len(parts) == 1 else (parts[0], parts[1]))
    if len({isinstance(row, str) for row in rows}) > 1:
        raise RequestError(
            "invalid", "texts and pairs in one request; send them separately", param="inputs"
        )
    return rows, True


async def rerank(body: bytes, context: Context) -> Reply:
    """Score texts for a query, and list them best first."""
    request = decode(body, Rerank)
    check_count(len(request.texts), context, "texts")
    answer = await context.service.rank(
        request.query,
        request.texts,
        options=context.options(
            truncate=request.truncate,
            direction=request.truncation_direction,
            raw_scores=bool(request.raw_scores),
        ),
        **context.call(),
    )
    rows = []
    for index in np.argsort(-answer.results, kind="stable").tolist():
        row = {"index": index, "score": answer.results[index]}
        rows.append(row | ({"text": request.texts[index]} if request.return_text else {}))
    return reply_of(dump(rows), answer)


async def similarity(body: bytes, context: Context) -> Reply:
    """Return the cosine similarity of a sentence and each of several others."""
    request = decode(body, Similarity)
    check_count(len(request.inputs.sentences), context, "inputs.sentences")
    parameters = request.parameters or SimilarityParameters()
    answer = await context.service.embed(
        [request.inputs.source_sentence, *request.inputs.sentences],
        options=context.options(
            truncate=parameters.truncate,
            direction=parameters.truncation_direction,
            prompt_name=parameters.prompt_name,
            normalize=True,
        ),
        **context.call(),
    )
    vectors = answer.results
    return reply_of(dump(vectors[1:] @ vectors[0]), answer)


async def info(_: bytes, context: Context) -> Reply:
    """Describe the first model and the server's limits, with all keys of TEI's ``/info``."""
    service = context.service
    served, options = service.find(None), service.options
    kinds: dict[str, Any] = {
        "embed": {"embedding": {"pooling": served.pooling}} if "embed" in served.tasks else None,
        "tokens": {"embedding": {"pooling": "none"}},
        "sparse": {"embedding": {"pooling": "splade"}},
        "rank": {"reranker": _label_maps(served.labels)} if "rank" in served.tasks else None,
        "classify": {"classifier": _label_maps(served.labels)}
        if "classify" in served.tasks
        else None,
    }
    return Reply(
        dump(
            {
                "model_id": served.name,
                "model_sha": None,
                "model_dtype": served.engine.dtype,
                "served_model_name": served.name,
                "model_type": kinds[served.tasks[0]],
                "max_concurrent_requests": options.max_requests,
                "max_input_length": served.max_length,
                "max_batch_tokens": served.batch_tokens,
                "max_batch_requests": None,
                "max_client_batch_size": options.max_texts,
                "auto_truncate": options.truncation == "cut",
                "tokenization_workers": 1,
                "version": sys.modules["encoder_engine"].__version__,
                "sha": None,
                "docker_label": None,
                "tasks": list(served.tasks),
                "prompts": dict(served.prompts),
                "dimension": served.dimension,
                "models": {name: list(one.tasks) for name, one in service.models.items()},
            }
        )
    )


def _label_maps(labels: list[str]) -> dict[str, dict[str, Any]]:
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
