"""Embeds texts of any length as overlapping chunks, whose vectors are pooled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import embed_rows, tokenized_windows
from encoder_engine.errors import InputError
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.text import Encoding
from encoder_engine.vectors.precision import quantize_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.parts import EmbedderParts

__all__ = ["ChunkPooling", "chunk_rows", "embed_long"]

ChunkPooling = Literal["mean", "weighted", "max"]
IntArray = np.ndarray[Any, np.dtype[np.integer[Any]]]
Array = np.ndarray[Any, np.dtype[Any]]


def embed_long(
    parts: EmbedderParts,
    texts: str | Iterable[str],
    options: EncodeOptions,
    *,
    overlap: int | None,
    chunk_pooling: ChunkPooling,
) -> Array:
    """Embed texts without truncation; see :meth:`Embedder.encode_long`."""
    if chunk_pooling not in get_args(ChunkPooling):
        raise InputError(
            f"chunk_pooling must be one of {', '.join(get_args(ChunkPooling))}, got "
            f"{chunk_pooling!r}"
        )
    special = len(parts.tokenizer.encode(""))
    prompt = len(parts.tokenizer.encode(options.prompt)) - special if options.prompt else 0
    limit = parts.max_seq_length
    _check_overlap(overlap, None if limit is None else limit - special - prompt)
    found = [parts.no_vectors(options)]
    opened = open_texts(texts)
    tokenized = tokenized_windows(
        parts.tokenizer,
        opened.rows,
        prompt=options.prompt,
        num_prompt_tokens=options.num_prompt_tokens,
        max_length=None,
        num_threads=parts.engine.num_threads,
        notice=TruncationNotice("ignore", limit=None),
    )
    for window in tokenized:
        encoding, num_texts = window.encoding, len(window.encoding.cu_seqlens) - 1
        assert isinstance(encoding, Encoding)
        rows, owners = chunk_rows(
            TokenRows.of(encoding),
            np.asarray(encoding.special_tokens_mask),
            limit=limit,
            overlap=overlap,
            prompt=prompt,
        )
        numbers = (window.first_row + owners).astype(np.intp)
        vectors, _ = embed_rows(parts, rows, numbers, options)
        own = rows.lengths - special - prompt
        pooled = _pool(vectors, owners, own, num_texts, chunk_pooling)
        if options.normalized:
            several = np.bincount(owners, minlength=num_texts) > 1
            lengths = np.linalg.norm(pooled[several], axis=1, keepdims=True)
            pooled[several] /= np.maximum(lengths, 1e-12)
        found.append(quantize_vectors(pooled, options.precision))
    every: Array = np.concatenate(found)
    return every[0] if opened.single else every


def chunk_rows(
    rows: TokenRows,
    special: np.ndarray[Any, np.dtype[np.bool_]],
    *,
    limit: int | None,
    overlap: int | None,
    prompt: int,
) -> tuple[TokenRows, IntArray]:
    """Cut rows longer than ``limit`` into chunks; return the chunks and the row of each.

    Every chunk has the special tokens and the leading ``prompt`` tokens of its row. ``overlap``:
    tokens that neighbouring chunks share; None: an eighth of a chunk.
    """
    ids, types, lengths, owners = [], [], [], []
    for row, (start, stop) in enumerate(
        zip(rows.cu_seqlens[:-1].tolist(), rows.cu_seqlens[1:].tolist(), strict=True)
    ):
        places = np.arange(start, stop)
        if limit is None or stop - start <= limit:
            chunks = [places]
        else:
            own = np.flatnonzero(~special[start:stop])
            head = places[: own[0] + prompt]
            tail, body = places[own[-1] + 1 :], places[own[0] + prompt : own[-1] + 1]
            chunks = _chunks(head, body, tail, limit, overlap)
        for chunk in chunks:
            ids.append(rows.ids[chunk])
            if rows.type_ids is not None:
                types.append(rows.type_ids[chunk])
            lengths.append(len(chunk))
            owners.append(row)
    cut = TokenRows(
        ids=np.concatenate(ids),
        type_ids=np.concatenate(types) if types else None,
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
    )
    return cut, np.asarray(owners)


def _check_overlap(overlap: object, room: int | None) -> None:
    """Raise :class:`InputError` unless ``overlap`` is below a chunk's ``room``; None: no limit."""
    if overlap is None or (room is not None and room < 1):
        return
    whole = isinstance(overlap, int) and not isinstance(overlap, bool)
    if not whole or overlap < 0 or (room is not None and overlap >= room):  # type: ignore[operator]
        most = "" if room is None else f" to {room - 1}, below a chunk's {room} tokens"
        raise InputError(f"overlap must be a whole number from 0{most}, got {overlap!r}")


def _chunks(
    head: IntArray, body: IntArray, tail: IntArray, limit: int, overlap: int | None
) -> list[IntArray]:
    room = limit - len(head) - len(tail)
    if room < 1:
        raise InputError(f"the prompt leaves no room for a text: the limit is {limit} tokens")
    shared = room // 8 if overlap is None else overlap
    # The last chunk begins where it still holds a token that none before it did.
    starts = range(0, max(len(body) - shared, 1), room - shared)
    return [np.concatenate([head, body[start : start + room], tail]) for start in starts]


def _pool(
    vectors: Array, owners: IntArray, lengths: IntArray, count: int, pooling: ChunkPooling
) -> Array:
    """Pool the chunk vectors of each text; the vector of a single chunk is left unchanged."""
    firsts = np.searchsorted(owners, np.arange(count))
    if pooling == "max":
        return np.asarray(np.maximum.reduceat(vectors, firsts, axis=0))
    weights = np.ones(len(owners)) if pooling == "mean" else np.maximum(lengths, 1).astype(float)
    totals = np.add.reduceat(weights, firsts)
    summed = np.add.reduceat(vectors * (weights / totals[owners])[:, None], firsts, axis=0)
    return np.asarray(summed.astype(np.float32))
