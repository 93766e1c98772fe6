"""TEI's routes that need only the tokenizer, which runs outside the event loop's thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from encoder_engine.serving.http.context import check_count, decode, texts_of
from encoder_engine.serving.http.faults import RequestError
from encoder_engine.serving.http.messages import Decode, Tokenize
from encoder_engine.serving.http.replies import Reply, dump
from encoder_engine.serving.request import size_of
from encoder_engine.serving.tasks import check_prompt

if TYPE_CHECKING:
    from encoder_engine.serving.http.context import Context
    from encoder_engine.text import Tokenizer

__all__ = ["decode_ids", "tokenize"]

# About the bytes of a token as JSON, and of an id as a Python integer in a list.
TOKEN_BYTES, ID_BYTES = 80, 40


async def tokenize(body: bytes, context: Context) -> Reply:
    """Tokenize texts: answer with each token's id, text and character range."""
    request = decode(body, Tokenize)
    texts = texts_of(request.inputs, context, "inputs")
    served = context.service.find(None)
    if request.prompt_name is not None:
        check_prompt(served.prompts, request.prompt_name)
        texts = [served.prompts[request.prompt_name] + text for text in texts]
    num_bytes = sum(map(size_of, texts))
    found = await context.service.run_aside(
        partial(
            _tokens,
            served.tokenizer,
            texts,
            add_special_tokens=request.add_special_tokens is not False,
        ),
        num_bytes=num_bytes,
        # A token has two characters and more in most texts.
        answer_bytes=TOKEN_BYTES * (sum(map(len, texts)) // 2 + 2 * len(texts)),
        timeout=context.timeout,
    )
    return Reply(found)


def _tokens(tokenizer: Tokenizer, texts: list[str], *, add_special_tokens: bool) -> bytes:
    found = tokenizer.encode_batch(
        texts, add_special_tokens=add_special_tokens, return_offsets=True, num_threads=1
    )
    special = found.special_tokens_mask.tolist()
    ids, offsets = found.ids.tolist(), found.offsets.tolist()
    ends = found.cu_seqlens.tolist()
    rows = []
    for text, start, stop in zip(texts, ends[:-1], ends[1:], strict=True):
        row = []
        for place in range(start, stop):
            first, last = offsets[place]
            is_special = bool(special[place])
            row.append(
                {
                    "id": ids[place],
                    "text": tokenizer.id_to_token(ids[place]) if is_special else text[first:last],
                    "special": is_special,
                    "start": None if is_special else first,
                    "stop": None if is_special else last,
                }
            )
        rows.append(dump(row))
    return b"[" + b",".join(rows) + b"]"


async def decode_ids(body: bytes, context: Context) -> Reply:
    """Decode token ids to texts."""
    request = decode(body, Decode)
    tokenizer = context.service.find(None).tokenizer
    alone: list[Any] = [one for one in request.ids if isinstance(one, int)]
    rows: list[Any] = [one for one in request.ids if isinstance(one, list)]
    if alone and rows:
        raise RequestError("invalid", "ids and lists of ids in one list; send them separately")
    rows = rows if rows or not alone else [alone]
    check_count(len(rows), context, "ids")
    skips = request.skip_special_tokens is not False
    num_ids = sum(map(len, rows))
    found = await context.service.run_aside(
        lambda: dump([tokenizer.decode(row, skip_special_tokens=skips) for row in rows]),
        num_bytes=ID_BYTES * num_ids,
        # A token's text has some bytes; one of hundreds is rare.
        answer_bytes=8 * num_ids,
        timeout=context.timeout,
    )
    return Reply(found)
