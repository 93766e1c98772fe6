"""Embeds every token of texts.

Dimensions: T tokens of all texts, D features.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.progress import progress_bar
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import tokenized_windows
from encoder_engine.errors import NonFiniteVectorError
from encoder_engine.packing.module_stack import EMPTY_STACK
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.vectors.token_vectors import TokenVectors, join_tokens, max_similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.parts import EmbedderParts
    from encoder_engine.embedding.steps.window import TokenizedWindow
    from encoder_engine.packing.module_stack import ModuleStack
    from encoder_engine.packing.token_rows import TokenizedRows

__all__ = ["TokenVectors", "embed_token_window", "embed_tokens", "max_similarity"]

Array = np.ndarray[Any, np.dtype[np.float32]]


def embed_tokens(
    parts: EmbedderParts,
    texts: str | Iterable[str],
    options: EncodeOptions,
    *,
    modules: ModuleStack = EMPTY_STACK,
    max_length: int | None = None,
    rows_of: Callable[[TokenizedRows], TokenRows] = TokenRows.of,
    shown: bool = False,
) -> TokenVectors:
    """Embed every token: the encoder's D features, or N after ``modules``.

    max_length: the most tokens of a text; None: the limit of ``parts``.
    rows_of: makes the rows to embed of a tokenizer's result.
    shown: a progress bar is.
    """
    limit = parts.max_seq_length if max_length is None else max_length
    notice = TruncationNotice(options.on_truncation, limit=limit)
    opened, found = open_texts(texts), []
    with progress_bar(opened.count, shown=shown) as advance:
        for window in tokenized_windows(
            parts.tokenizer,
            opened.rows,
            prompt=options.prompt,
            num_prompt_tokens=0,
            max_length=limit,
            num_threads=parts.engine.num_threads,
            notice=notice,
        ):
            found.append(
                embed_token_window(parts, window, options, modules=modules, rows_of=rows_of)
            )
            advance(len(found[-1]))
    notice.warn()
    return join_tokens(found, modules.width(parts.engine.spec.width))


def embed_token_window(
    parts: EmbedderParts,
    window: TokenizedWindow,
    options: EncodeOptions,
    *,
    modules: ModuleStack = EMPTY_STACK,
    rows_of: Callable[[TokenizedRows], TokenRows] = TokenRows.of,
) -> TokenVectors:
    """Embed every token of a tokenized window; see :func:`embed_tokens`."""
    engine, token_rows = parts.engine, rows_of(window.encoding)
    width = modules.width(engine.spec.width)
    compute = partial(
        engine.token_vectors,
        layers=parts.recipe.layers,
        modules=modules,
        normalized=options.normalized,
    )
    found = np.empty((len(token_rows.ids), width), dtype=np.float32)
    starts = np.asarray(token_rows.cu_seqlens, dtype=np.int64)
    for rows, computed in compute_batches(
        *(engine, token_rows, compute),
        batch_tokens=options.batch_tokens,
        batch_size=options.batch_size,
        limit=parts.memory_limit,
        numbers=window.first_row + np.arange(len(token_rows)),
    ):
        own = np.concatenate([[0], np.cumsum(token_rows.lengths[rows])])
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
    return TokenVectors(vectors=found, ids=np.asarray(token_rows.ids), cu_seqlens=starts)
