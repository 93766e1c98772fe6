"""Embeds every token of texts.

Dimensions: T tokens of all texts, D features.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import tokenized_windows
from encoder_engine.errors import NonFiniteVectorError
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.vectors.token_vectors import TokenVectors, join_tokens, max_similarity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.parts import EmbedderParts
    from encoder_engine.embedding.steps.window import TokenizedWindow

__all__ = ["TokenVectors", "embed_token_window", "embed_tokens", "max_similarity"]

Array = np.ndarray[Any, np.dtype[np.float32]]


def embed_tokens(
    parts: EmbedderParts,
    texts: str | Iterable[str],
    options: EncodeOptions,
    *,
    projection_ND: Array | None = None,
) -> TokenVectors:
    """Embed every token: the encoder's D features, or N after a projection."""
    notice = TruncationNotice(options.on_truncation, limit=parts.max_seq_length)
    tokenized = tokenized_windows(
        parts.tokenizer,
        open_texts(texts).rows,
        prompt=options.prompt,
        num_prompt_tokens=0,
        max_length=parts.max_seq_length,
        num_threads=parts.engine.num_threads,
        notice=notice,
    )
    found = [
        embed_token_window(parts, window, options, projection_ND=projection_ND)
        for window in tokenized
    ]
    notice.warn()
    width = parts.engine.spec.width if projection_ND is None else len(projection_ND)
    return join_tokens(found, width)


def embed_token_window(
    parts: EmbedderParts,
    window: TokenizedWindow,
    options: EncodeOptions,
    *,
    projection_ND: Array | None = None,
) -> TokenVectors:
    """Embed every token of a tokenized window."""
    engine, encoding = parts.engine, window.encoding
    width = engine.spec.width if projection_ND is None else len(projection_ND)
    compute = partial(
        engine.token_vectors,
        layers=parts.recipe.layers,
        projection_ND=projection_ND,
        normalized=options.normalized,
    )
    found = np.empty((len(encoding.ids), width), dtype=np.float32)
    starts = np.asarray(encoding.cu_seqlens, dtype=np.int64)
    for rows, computed in compute_batches(
        *(engine, TokenRows.of(encoding), compute),
        batch_tokens=options.batch_tokens,
        batch_size=options.batch_size,
        limit=parts.memory_limit,
        numbers=window.first_row + np.arange(len(encoding)),
    ):
        own = np.concatenate([[0], np.cumsum(encoding.lengths[rows])])
        for place, row in enumerate(rows):
            found[starts[row] : starts[row + 1]] = computed[own[place] : own[place + 1]]
    broken = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(broken):
        row = window.first_row + int(np.searchsorted(starts, broken[0], side="right")) - 1
        raise NonFiniteVectorError(
            f"{len(broken)} tokens' vectors are NaN or infinite, the first of text {row}: the "
            "model's numbers overflow or are damaged",
            rows=[row],
        )
    return TokenVectors(vectors=found, ids=np.asarray(encoding.ids), cu_seqlens=starts)
