"""Log-probabilities of texts by a causal language model.

How it works: the log-probability of a text is the sum over its tokens, each after those before it.
A text's first token has nothing before it and is not counted, unless the tokenizer puts a token
first. Rows of the encoder are multiplied by the vocabulary in pieces, and only the running softmax
of each row is kept, so memory does not grow with the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.embedding.directory.modules import TRANSFORMER_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.engines.choosing import EngineRequest, load_causal
from encoder_engine.embedding.limits import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.options import (
    OnTruncation,
    check_on_truncation,
    resolve_batch_tokens,
)
from encoder_engine.embedding.parts import token_limit
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.errors import InputError, NonFiniteVectorError
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Unpack

    import torch

    from encoder_engine.embedding.engines.engine import CausalEngine, EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.text import Encoding, Tokenizer

__all__ = ["Scorer"]

TokenScores = np.ndarray[Any, np.dtype[np.float32]]


class Scorer:
    """Scores texts by their log-probability under a causal model, in nats.

    Raises :class:`ConfigError` where the tokenizer has more tokens than the model.
    """

    def __init__(
        self, engine: CausalEngine, tokenizer: Tokenizer, *, max_seq_length: int | None = None
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer.fitted_to(engine.spec.embedding.vocab_size)
        self.max_seq_length = token_limit(max_seq_length, engine.spec.max_length)
        self.memory_limit = MemoryLimit()

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        max_seq_length: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a causal model: Qwen, Llama, Mistral, Gemma, GPT-2.

        Raises :class:`UnsupportedFeatureError` for a model whose tokens see later ones. Other
        options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            *(resolve_directory(path_or_hub_id, **hub), "SentenceTransformer", TRANSFORMER_ORDER),
            settings_of_plain=False,
        )
        request = EngineRequest.of(engine, device, dtype, quantization)
        return cls(
            load_causal(opened.encoder_folder, request),
            opened.read_tokenizer(),
            max_seq_length=max_seq_length,
        )

    def score(
        self,
        texts: str | Iterable[str],
        *,
        context: str | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> Any:
        """Return the log-probability of each text, float64 [N]; of a single ``str``, a number.

        context: a text before each, whose tokens are not counted. A token that holds characters of
            both is counted. Batches compute it once.
        batch_tokens: the most tokens of a batch.
        on_truncation: see :meth:`Embedder.encode`; a text longer than ``max_seq_length`` is scored
            up to there.

        Raises :class:`TextError` with the row, and :class:`NonFiniteVectorError` where a score is
        NaN or infinite.
        """
        parts = self.score_tokens(
            texts, context=context, batch_tokens=batch_tokens, on_truncation=on_truncation
        )
        if isinstance(parts, np.ndarray):  # of a single text
            return parts.sum(dtype=np.float64)
        return np.array([part.sum(dtype=np.float64) for part in parts], dtype=np.float64)

    def score_tokens(
        self,
        texts: str | Iterable[str],
        *,
        context: str | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> Any:
        """Return the log-probability of each counted token, a list of float32 [n] of each text.

        A single ``str`` gives [n]. Options and exceptions: see :meth:`score`.
        """
        check_on_truncation(on_truncation)
        if context is not None and not isinstance(context, str):
            raise InputError(f"context must be a str, got {type(context).__name__}")
        before = context or ""
        opened = open_texts(texts)
        whole = [before + text for text in opened.rows]
        encoding = self.tokenizer.encode_batch(
            whole,
            max_length=self.max_seq_length,
            num_threads=self.engine.num_threads,
            return_offsets=bool(before),
        )
        notice = TruncationNotice(on_truncation, limit=self.max_seq_length)
        notice.observe(np.asarray(encoding.truncated))
        notice.warn()
        rows, engine = TokenRows.of(encoding), self.engine
        budget = default_batch_tokens(engine.spec, engine.device, engine.dtype)
        found = np.zeros(len(rows.ids), dtype=np.float32)
        for numbers, scores in compute_batches(
            *(engine, rows, engine.log_probabilities),
            batch_tokens=resolve_batch_tokens(batch_tokens, budget),
            limit=self.memory_limit,
        ):
            ends = np.cumsum(rows.lengths[numbers])
            for number, part in zip(numbers, np.split(scores, ends[:-1]), strict=True):
                found[rows.cu_seqlens[number] : rows.cu_seqlens[number + 1]] = part
        _check_finite(found, rows)
        counted = _counted(encoding, rows, len(before))
        parts = np.split(np.arange(len(found)), rows.cu_seqlens[1:-1])
        scored = [found[part[counted[part]]] for part in parts[: len(rows)]]
        return scored[0] if opened.single else scored


def _counted(encoding: Encoding, rows: TokenRows, context_length: int) -> np.ndarray[Any, Any]:
    """Return whether each token is counted: not a row's first, and not of the context alone.

    A token that the tokenizer puts at the end is counted, with a context or without.
    """
    counted = np.ones(len(rows.ids), dtype=bool)
    starts = rows.cu_seqlens[:-1][rows.lengths > 0]
    counted[starts] = False
    if context_length and len(starts):
        # The first token of each row that holds a character of the text; what follows is counted.
        numbers = np.arange(len(rows.ids))
        after = np.where(encoding.offsets[:, 1] > context_length, numbers, len(numbers))
        first = np.minimum.reduceat(after, starts)
        counted &= numbers >= np.repeat(first, rows.lengths[rows.lengths > 0])
    return counted


def _check_finite(scores: TokenScores, rows: TokenRows) -> None:
    """Raise :class:`NonFiniteVectorError` that names the first text with such a score."""
    broken = np.flatnonzero(~np.isfinite(scores))
    if len(broken):
        row = int(np.searchsorted(rows.cu_seqlens, broken[0], side="right")) - 1
        raise NonFiniteVectorError(
            f"{len(broken)} scores of tokens are NaN or infinite, the first of text {row}: the "
            "model's numbers overflow or are damaged",
            rows=[row],
        )
