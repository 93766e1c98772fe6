"""Rerankers that are causal models: a pair's score is the logit of "yes" less that of "no".

How it works: a template puts query and document between fixed words, which end where the model
would answer. One pass gives the row of the last token, and only two rows of the vocabulary are
multiplied by it. The words before the query are the same in all pairs: batches compute them once.
"""

from __future__ import annotations

from functools import partial
from string import Formatter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.directory.modules import TRANSFORMER_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.engines.choosing import EngineRequest, load_causal
from encoder_engine.embedding.limits import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.options import (
    OnTruncation,
    check_on_truncation,
    resolve_batch_tokens,
)
from encoder_engine.embedding.parts import check_vocabulary, token_limit
from encoder_engine.embedding.ranker import (
    check_activation,
    check_scores,
    check_top_k,
    order_documents,
    unzip_pairs,
)
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Unpack

    import torch

    from encoder_engine.embedding.engines.engine import CausalEngine, EngineChoice
    from encoder_engine.embedding.ranker import Activation, Ranked, Scores
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.packing.token_rows import IdArray
    from encoder_engine.text import Tokenizer

__all__ = ["CausalRanker", "PairTemplate"]


@dataclass(frozen=True, kw_only=True)
class PairTemplate:
    """The words around a pair; the defaults are those that Qwen3-Reranker was published with.

    prefix, suffix: before and after, which truncation never cuts.
    body: with ``{instruction}``, ``{query}`` and ``{document}``; its end is cut.
    instruction: the default one.
    positive, negative: the answers, one token each; negative None: the score is the positive's
        logit alone.
    """

    prefix: str = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n"
    )
    suffix: str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    body: str = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    instruction: str = "Given a web search query, retrieve relevant passages that answer the query"
    positive: str = "yes"
    negative: str | None = "no"


class CausalRanker:
    """Scores pairs of a query and a document by the answer of a causal model.

    activation: ``"sigmoid"``, the probability of the positive answer among the two, or
        ``"identity"``, its log-odds.

    Raises :class:`ConfigError` where the tokenizer has more tokens than the model, an answer is
    not one token, or the template's body lacks the query or the document.
    """

    def __init__(
        self,
        engine: CausalEngine,
        tokenizer: Tokenizer,
        *,
        template: PairTemplate | None = None,
        max_seq_length: int | None = None,
        activation: Activation = "sigmoid",
    ) -> None:
        check_vocabulary(tokenizer, engine.spec)
        self.engine, self.tokenizer = engine, tokenizer
        self.template = PairTemplate() if template is None else template
        self.max_seq_length = token_limit(max_seq_length, engine.spec.max_length)
        self.activation = check_activation(activation)
        self.memory_limit = MemoryLimit()
        _check_body(self.template.body)
        self._prefix, self._suffix = map(self._ids, (self.template.prefix, self.template.suffix))
        answers = (self.template.positive, self.template.negative)
        self._answers = tuple(self._answer(word) for word in answers if word is not None)
        if self._room() is not None and self._room() < 1:  # type: ignore[operator]
            raise ConfigError(
                f"the template has {len(self._prefix) + len(self._suffix)} tokens and leaves no "
                f"room for a pair: the limit is {self.max_seq_length}"
            )

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        template: PairTemplate | None = None,
        max_seq_length: int | None = None,
        activation: Activation = "sigmoid",
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a causal model, such as Qwen3-Reranker.

        Options and exceptions: see :meth:`Embedder.from_pretrained`, and
        :meth:`Scorer.from_pretrained` for a model that is not causal.
        """
        opened = open_directory(
            *(resolve_directory(path_or_hub_id, **hub), "CrossEncoder", TRANSFORMER_ORDER),
            task="text-generation",
            reads="logits",
            makes="causal_logits",
        )
        request = EngineRequest.of(engine, device, dtype, quantization)
        return cls(
            load_causal(opened.encoder_folder, request),
            opened.read_tokenizer(),
            template=template,
            max_seq_length=max_seq_length,
            activation=activation,
        )

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        instruction: str | None = None,
        activation: Activation | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> Scores:
        """Score pairs of a query and a document: float32 [N].

        instruction: the task in words; None: the template's.
        activation: replaces the ranker's.
        batch_tokens: the most tokens of a batch.
        on_truncation: see :meth:`Embedder.encode`; a pair longer than ``max_seq_length`` loses the
            tail of its document.

        Raises :class:`TextError` and :class:`InputError` with the row, and
        :class:`NonFiniteVectorError` where a score is NaN or infinite.
        """
        check_on_truncation(on_truncation)
        applied = self.activation if activation is None else check_activation(activation)
        rows = self._rows(pairs, instruction, on_truncation)
        engine = self.engine
        budget = default_batch_tokens(engine.spec, engine.device, engine.dtype)
        odds = np.empty(len(rows), dtype=np.float32)
        for numbers, logits in compute_batches(
            *(engine, rows, partial(engine.last_logits, token_ids=self._answers)),
            batch_tokens=resolve_batch_tokens(batch_tokens, budget),
            limit=self.memory_limit,
            row_name="pair",
        ):
            odds[numbers] = logits[:, 0] - (logits[:, 1] if logits.shape[1] > 1 else 0.0)
        check_scores(odds)
        if applied == "identity":
            return odds
        with np.errstate(over="ignore"):
            scores: Scores = (1.0 / (1.0 + np.exp(-odds.astype(np.float64)))).astype(np.float32)
        return scores

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[Ranked]:
        """Rank documents for a query: the best first, equal scores in the order given.

        ``top_k``: the most documents to return; None: all. Other options and exceptions: see
        :meth:`score`.
        """
        check_top_k(top_k)
        texts = list(open_texts(documents).rows)
        scores = self.score([(query, text) for text in texts], **options)
        return order_documents(scores, texts, top_k=top_k, return_documents=return_documents)

    def _rows(
        self,
        pairs: Iterable[tuple[str, str]],
        instruction: str | None,
        on_truncation: OnTruncation,
    ) -> TokenRows:
        """Put the pairs into the template: rows of prefix, body, cut to its room, and suffix."""
        queries, documents = unzip_pairs(pairs)
        for row, texts in enumerate(zip(queries, documents, strict=True)):
            if not all(isinstance(text, str) for text in texts):
                raise InputError(f"pair {row} must be two texts, got {texts!r:.80}", row=row)
        task = self.template.instruction if instruction is None else instruction
        bodies = [
            self.template.body.format(instruction=task, query=query, document=document)
            for query, document in zip(queries, documents, strict=True)
        ]
        encoding = self.tokenizer.encode_batch(
            bodies,
            add_special_tokens=False,
            max_length=self._room(),
            num_threads=self.engine.num_threads,
        )
        notice = TruncationNotice(on_truncation, limit=self.max_seq_length, row_name="pair")
        notice.observe(np.asarray(encoding.truncated))
        notice.warn()
        around = len(self._prefix) + len(self._suffix)
        starts = encoding.cu_seqlens + np.arange(len(bodies) + 1, dtype=np.int32) * around
        parts = np.split(encoding.ids, encoding.cu_seqlens[1:-1])
        whole = [ids for part in parts for ids in (self._prefix, part, self._suffix)]
        ids = np.concatenate(whole) if bodies else encoding.ids
        return TokenRows(ids=ids.astype(np.int32), cu_seqlens=starts.astype(np.int32))

    def _room(self) -> int | None:
        """Return the most tokens of a body; None: no limit."""
        if self.max_seq_length is None:
            return None
        return self.max_seq_length - len(self._prefix) - len(self._suffix)

    def _ids(self, text: str) -> IdArray:
        return self.tokenizer.encode_batch([text], add_special_tokens=False).ids

    def _answer(self, word: str) -> int:
        """Return the token of an answer."""
        ids = self._ids(word)
        if len(ids) != 1:
            raise ConfigError(
                f"the answer {word!r} is {len(ids)} tokens of this tokenizer, it must be one; pass "
                "template=PairTemplate(positive=..., negative=...)"
            )
        return int(ids[0])


def _check_body(body: str) -> None:
    """Raise :class:`ConfigError` unless a template's body has a query and a document."""
    try:
        names = {name for _, name, _, _ in Formatter().parse(body) if name is not None}
    except ValueError as error:
        raise ConfigError(f"the body {body!r:.80} is not a template: {error}") from error
    if not {"query", "document"} <= names <= {"instruction", "query", "document"}:
        raise ConfigError(
            f"the body {body!r:.80} must have {{query}} and {{document}}, and beside them only "
            "{instruction}"
        )
