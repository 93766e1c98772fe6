"""Log-probabilities of texts by a causal language model.

How it works: the log-probability of a text is the sum over its tokens, each given those before it.
A text's first token has nothing before it and is not counted, unless the tokenizer puts a token
first. The hidden states are multiplied by the output layer in parts of the vocabulary, and only a
running softmax of each token is kept, so memory does not grow with the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.engine.choosing import EngineRequest, load_causal
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.kinds.log_probabilities import LogProbabilities
from encoder_engine.kinds.model import Model
from encoder_engine.kinds.options import token_limit
from encoder_engine.kinds.texts import open_texts
from encoder_engine.opening.modules import TRANSFORMER_ORDER
from encoder_engine.opening.opening import open_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from typing import Unpack

    import torch

    from encoder_engine.engine.protocol import EncoderEngine, EngineChoice
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.options import OnTruncation
    from encoder_engine.text import Tokenizer

__all__ = ["Scorer"]


class Scorer(Model):
    """Scores texts by their log-probability under a causal model, in nats.

    Raises :class:`ConfigError` where special tokens lie beyond the model's vocabulary; a text with
    another token beyond it raises :class:`TextError` when it is scored.
    """

    engine: EncoderEngine

    def __init__(
        self, engine: EncoderEngine, tokenizer: Tokenizer, *, max_seq_length: int | None = None
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

        Raises :class:`UnsupportedFeatureError` for a model that is not causal. Other
        options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            resolve_directory(path_or_hub_id, **hub),
            "SentenceTransformer",
            TRANSFORMER_ORDER,
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

        context: a text that is put before each text; its tokens are not counted. A token with
            characters of both context and text is counted. Batches compute the context once.
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
        """Return the log-probability of each counted token: a list of float32 [n] for each text.

        A single ``str`` gives [n]. Options and exceptions: see :meth:`score`.
        """
        kind, opened = self.kind, open_texts(texts)
        options = kind.resolve(
            context=context, batch_tokens=batch_tokens, on_truncation=on_truncation
        )
        scored = kind.collect(opened.rows, options, count=opened.count)
        return scored[0] if opened.single else scored

    @property
    def prompts(self) -> Mapping[str, str]:
        """Return no prompts: each call passes its own ``context``."""
        return {}

    def kinds(self) -> dict[str, Kind]:
        """Return {"log-probabilities": ...}: how these are computed; see :meth:`Model.kinds`."""
        return {"log-probabilities": LogProbabilities(self)}
