"""Cross-encoders: scores of pairs, each pair encoded as one sequence."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Self, TypedDict, get_args

import numpy as np

from encoder_engine.embedding.directory.json_files import read_value
from encoder_engine.embedding.directory.modules import TRANSFORMER_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import CONFIG, Settings
from encoder_engine.embedding.engines.choosing import (
    EngineRequest,
    load_sequence_classification,
    scoring_engine,
)
from encoder_engine.embedding.limits import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.options import (
    OnTruncation,
    check_on_truncation,
    resolve_batch_tokens,
    resolve_prompt,
)
from encoder_engine.embedding.parts import check_vocabulary, smallest
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.errors import (
    InputError,
    NonFiniteVectorError,
    TextError,
    UnsupportedFeatureError,
)
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    import torch

    from encoder_engine.embedding.engines.engine import EngineChoice
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import SequenceClassification
    from encoder_engine.text import Tokenizer

__all__ = ["Ranked", "Ranker"]

Scores = np.ndarray[Any, np.dtype[np.float32]]
Activation = Literal["identity", "sigmoid"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
# The keys under which sentence-transformers states the activation, the newest first.
NEW_KEY = "activation_fn"
OLD_KEY = "sbert_ce_default_activation_function"


class Ranked(TypedDict):
    """A document's index in the list, its score and, with ``return_documents``, its text."""

    corpus_id: int
    score: float
    text: NotRequired[str]


class Ranker:
    """Scores pairs of texts as a ``CrossEncoder`` would with the same directory.

    ``activation`` turns logits into scores: ``"sigmoid"`` or ``"identity"``. Raises
    :class:`ConfigError` where the tokenizer has more tokens than the model.
    """

    def __init__(
        self,
        model: CompiledEncoder | SequenceClassification,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int | None = None,
        activation: Activation = "identity",
        settings: Settings | None = None,
    ) -> None:
        self.model, self.engine = model, scoring_engine(model)
        spec = self.engine.spec
        check_vocabulary(tokenizer, spec)
        self.memory_limit = MemoryLimit()
        self.tokenizer = tokenizer
        self.max_seq_length = smallest(max_seq_length, spec.max_length)
        self.activation = check_activation(activation)
        self.settings = Settings() if settings is None else settings

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        *,
        max_seq_length: int | None = None,
        activation: Activation | None = None,
        engine: EngineChoice = "auto",
    ) -> Self:
        """Load a model for sequence classification: a CrossEncoder's directory or a plain one.

        ``activation`` None: the directory's, or by default sigmoid for a model with one label and
        identity otherwise. Raises :class:`UnsupportedFeatureError` for modules after the
        transformer. Other options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            *(path_or_hub_id, "CrossEncoder", TRANSFORMER_ORDER),
            task="sequence-classification",
            reads="logits",
            makes="scores",
        )
        folder = opened.encoder_folder
        model = load_sequence_classification(folder, EngineRequest.of(engine, device, dtype))
        stated = _read_activation(opened.directory, folder) if activation is None else activation
        ranker = cls(
            model,
            opened.read_tokenizer(),
            max_seq_length=opened.max_seq_length if max_seq_length is None else max_seq_length,
            activation="identity" if stated is None else stated,
            settings=opened.settings,
        )
        if stated is None and ranker.num_labels == 1:
            ranker.activation = "sigmoid"
        return ranker

    @property
    def num_labels(self) -> int:
        """The number of scores of each pair."""
        return self.engine.num_labels

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        activation: Activation | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> Scores:
        """Score pairs of texts: float32 [N], or [N, C] of a model with several labels.

        prompt, prompt_name: a text, or the name of the directory's, put before each first text.
        activation: replaces the model's.
        batch_tokens: the most tokens of a batch.
        on_truncation: see :meth:`Embedder.encode`; a pair longer than ``max_seq_length`` loses the
            tail of its longer text.

        Raises :class:`TextError` and :class:`InputError` with the row, and
        :class:`NonFiniteVectorError` where a score is NaN or infinite.
        """
        check_on_truncation(on_truncation)
        firsts, seconds = unzip_pairs(pairs)
        applied = self.activation if activation is None else check_activation(activation)
        settings = self.settings
        prefix = resolve_prompt(prompt, prompt_name, settings.prompts, settings.default_prompt_name)
        if prefix:
            firsts = [prefix + one if isinstance(one, str) else one for one in firsts]
        encoding = self.tokenizer.encode_batch(
            firsts, seconds, max_length=self.max_seq_length, num_threads=self.engine.num_threads
        )
        notice = TruncationNotice(on_truncation, limit=self.max_seq_length, row_name="pair")
        notice.observe(np.asarray(encoding.truncated))
        notice.warn()
        engine = self.engine
        budget = default_batch_tokens(engine.spec, engine.device, engine.dtype)
        scores = np.empty((len(firsts), self.num_labels), dtype=np.float32)
        for rows, found in compute_batches(
            *(engine, TokenRows.of(encoding), partial(engine.scores, activation=applied)),
            batch_tokens=resolve_batch_tokens(batch_tokens, budget),
            limit=self.memory_limit,
            row_name="pair",
        ):
            scores[rows] = found
        check_scores(scores)
        return scores[:, 0] if self.num_labels == 1 else scores

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        return_documents: bool = False,
        prompt: str | None = None,
        prompt_name: str | None = None,
        activation: Activation | None = None,
        batch_tokens: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> list[Ranked]:
        """Rank documents for a query: the best first, equal scores in the order given.

        ``top_k``: the most documents to return; None: all. Raises :class:`UnsupportedFeatureError`
        for a model with several labels, whose scores have no order. Other options and exceptions:
        see :meth:`score`.
        """
        if self.num_labels != 1:
            raise UnsupportedFeatureError(
                f"rank needs a model with one label, this one has {self.num_labels}; use score"
            )
        check_top_k(top_k)
        texts = list(open_texts(documents).rows)
        scores = self.score(
            [(query, text) for text in texts],
            prompt=prompt,
            prompt_name=prompt_name,
            activation=activation,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return order_documents(scores, texts, top_k=top_k, return_documents=return_documents)


def check_top_k(top_k: int | None) -> None:
    """Raise :class:`InputError` unless it is a positive whole number or None."""
    if top_k is not None and (isinstance(top_k, bool) or top_k < 1):
        raise InputError(f"top_k must be a positive whole number, got {top_k!r}")


def order_documents(
    scores: Scores, texts: list[str], *, top_k: int | None, return_documents: bool
) -> list[Ranked]:
    """Return the documents with the best scores, equal ones in the order given."""
    best = [int(row) for row in np.argsort(-scores, kind="stable")[:top_k]]
    ranked = [Ranked(corpus_id=row, score=float(scores[row])) for row in best]
    if return_documents:
        for one in ranked:
            one["text"] = texts[one["corpus_id"]]
    return ranked


def check_scores(scores: Scores) -> None:
    """Raise :class:`NonFiniteVectorError` for scores [N] or [N, C] that are NaN or infinite."""
    broken = np.flatnonzero(~np.isfinite(scores.reshape(len(scores), -1)).all(axis=1))
    if len(broken):
        raise NonFiniteVectorError(
            f"the scores of {len(broken)} pairs are NaN or infinite, the first is pair "
            f"{broken[0]}: the model's numbers overflow or are damaged",
            rows=[int(row) for row in broken],
        )


def unzip_pairs(pairs: Iterable[object]) -> tuple[list[str], list[str]]:
    if isinstance(pairs, str):
        raise TextError("pairs must be pairs of texts, got one str")
    firsts, seconds = [], []
    for row, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"pair {row} must be two texts, got {pair!r:.80}", row=row)
        firsts.append(pair[0])
        seconds.append(pair[1])
    return firsts, seconds


def check_activation(activation: str) -> Activation:
    for known in ACTIVATIONS:
        if activation == known:
            return known
    raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")


def _read_activation(directory: Path, folder: Path) -> Activation | None:
    """Read the activation that the directory states, in any dialect of sentence-transformers."""
    stated: object = None
    path = directory / CONFIG
    if path.is_file():
        stated = read_value(path).get(NEW_KEY).value
    if stated is None:
        path = folder / "config.json"
        config = read_value(path).object()
        nested = config.get("sentence_transformers")
        stated = nested.get(NEW_KEY) if isinstance(nested, dict) else None
        stated = config.get(OLD_KEY) if stated is None else stated
    if stated is None:
        return None
    name = stated.rpartition(".")[2].lower() if isinstance(stated, str) else ""
    if name not in ACTIVATIONS or not str(stated).startswith("torch."):
        raise UnsupportedFeatureError(
            f"{path} states the activation {stated!r}, which is not implemented; pass activation="
        )
    return check_activation(name)
