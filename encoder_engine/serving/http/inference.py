"""The route of Hugging Face's inference API: pipeline calls, answered in that API's format.

Answers are transformers' dicts, with two exceptions. Zero-shot classification answers a list of
labels with scores, without the text. Text classification answers a list for each input, with all
labels by default.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from encoder_engine.serving.http.context import check_count, decode
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import CallParameters, PipelineCall
from encoder_engine.serving.http.replies import Reply, dump, reply_of

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context

__all__ = ["call"]


async def call(body: bytes, context: Context) -> Reply:
    """Call a pipeline; answer with the result of one input, or a list of results of several."""
    request = decode(body, PipelineCall)
    single = not isinstance(request.inputs, list)
    inputs: list[Any] = [request.inputs] if single else list(request.inputs)
    check_count(len(inputs), context, "inputs")
    served = context.service.find(context.rest or None, "predict")
    served.check_task("predict")
    given = msgspec.to_builtins(request.parameters or CallParameters())
    classifies = served.model.task in ("text-classification", "sentiment-analysis")
    if classifies:
        given.setdefault("top_k", len(served.model.model.labels))
    try:
        served.model.checked(given)
    except TypeError:
        known = ", ".join(served.model.keywords)
        raise RequestError(
            "invalid", f"unknown parameter; {served.model.task} takes {known}", param="parameters"
        ) from None
    answer = await context.service.predict(
        inputs,
        served.name,
        options=context.options(truncate=None, parameters=json.dumps(given, sort_keys=True)),
        **context.call(),
    )
    results = answer.results
    if served.model.task == "zero-shot-classification":
        results = [
            [{"label": n, "score": p} for n, p in zip(one["labels"], one["scores"], strict=True)]
            for one in results
        ]
    if single and not classifies:
        results = served.model.unwrapped(inputs[0], results[0], given)
    return reply_of(dump(results), answer)
