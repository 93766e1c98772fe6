"""Cross-encoders: scores of pairs, each pair encoded as one sequence."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Self, TypedDict, get_args

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.directory.json_files import read_value
from encoder_engine.embedding.directory.modules import TRANSFORMER_ORDER
from encoder_engine.embedding.directory.opening import open_directory
from encoder_engine.embedding.directory.recipe import CONFIG, Settings
from encoder_engine.embedding.engines.choosing import (
    EngineRequest,
    load_sequence_classification,
    scoring_engine,
)
from encoder_engine.embedding.jobs.keywords import run_over_files
from encoder_engine.embedding.limits import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.options import (
    OnTruncation,
    check_on_truncation,
    check_positive,
    resolve_batch_tokens,
    resolve_prompt,
)
from encoder_engine.embedding.parts import check_vocabulary, token_limit
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.texts import open_texts
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import ResultWindow, TokenizedWindow
from encoder_engine.errors import (
    InputError,
    NonFiniteVectorError,
    TextError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.families.checkpoints.files import fetching, hub_of_base, resolve_directory
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Unpack

    import torch

    from encoder_engine.embedding.dataset.run import DatasetSummary
    from encoder_engine.embedding.engines.engine import EngineChoice
    from encoder_engine.embedding.jobs.keywords import JobKeywords
    from encoder_engine.families.checkpoints.files import HubKeywords
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


@dataclass(frozen=True, kw_only=True)
class ScoreCall:
    """The options of one call as given; see :meth:`Ranker.score`."""

    prompt: str | None = None
    prompt_name: str | None = None
    activation: Activation | None = None
    batch_tokens: int | None = None
    batch_size: int | None = None
    on_truncation: OnTruncation = "ignore"


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of one call with every default filled in."""

    prompt: str
    activation: Activation
    batch_tokens: int
    batch_size: int | None
    on_truncation: OnTruncation
    num_labels: int

    def describe(self) -> dict[str, Any]:
        """Return what decides the scores, as values of JSON: the plan of a job records it."""
        return {
            "prompt": self.prompt,
            "num_prompt_tokens": 0,
            "normalized": False,
            "dimension": self.num_labels,
            "precision": "float32",
            "on_truncation": self.on_truncation,
            "activation": self.activation,
        }


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
        least = len(tokenizer.encode_batch([""], [""]).ids) + 1
        self.max_seq_length = token_limit(max_seq_length, spec.max_length, least=least)
        self.activation = check_activation(activation)
        self.settings = Settings() if settings is None else settings
        self._path: str | None = None
        self._reload: Callable[..., Ranker] | None = None

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
        activation: Activation | None = None,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a model for sequence classification: a CrossEncoder's directory or a plain one.

        ``activation`` None: the directory's, or by default sigmoid for a model with one label and
        identity otherwise. ``quantization="int8"`` rounds the blocks' dense layers, not the head,
        on a CPU. Raises :class:`UnsupportedFeatureError` for modules after the
        transformer. Other options and exceptions: see :meth:`Embedder.from_pretrained`.
        """
        opened = open_directory(
            *(resolve_directory(path_or_hub_id, **hub), "CrossEncoder", TRANSFORMER_ORDER),
            task="sequence-classification",
            reads="logits",
            makes="scores",
        )
        folder = opened.encoder_folder
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        model = load_sequence_classification(folder, request)
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
        ranker._path = str(opened.directory)
        ranker._reload = partial(
            _load_again,
            *(cls, str(opened.directory), request),
            engine=ranker.engine.name,
            hub=hub_of_base(),
        )
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
        batch_size: int | None = None,
        on_truncation: OnTruncation = "warn",
    ) -> Scores:
        """Score pairs of texts: float32 [N], or [N, C] of a model with several labels.

        prompt, prompt_name: a text, or the name of the directory's, put before each first text.
        activation: replaces the model's.
        batch_tokens, batch_size: the most tokens and the most pairs of a batch.
        on_truncation: see :meth:`Embedder.encode`; a pair longer than ``max_seq_length`` loses the
            tail of its longer text.

        Raises :class:`TextError` and :class:`InputError` with the row, and
        :class:`NonFiniteVectorError` where a score is NaN or infinite.
        """
        firsts, seconds = unzip_pairs(pairs)
        options = self.resolve(
            ScoreCall(
                prompt=prompt,
                prompt_name=prompt_name,
                activation=activation,
                batch_tokens=batch_tokens,
                batch_size=batch_size,
                on_truncation=on_truncation,
            )
        )
        notice = TruncationNotice(on_truncation, limit=self.max_seq_length, row_name="pair")
        tokenized = self._tokenize(firsts, seconds, 0, options, notice)
        notice.warn()
        scores = self._scores(tokenized, options)
        return scores[:, 0] if self.num_labels == 1 else scores

    def predict(self, pairs: Iterable[tuple[str, str]], **options: Any) -> Scores:
        """Score pairs: :meth:`score`, as sentence-transformers calls it."""
        return self.score(pairs, **options)

    def score_dataset(
        self,
        inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        output: str | os.PathLike[str],
        *,
        pair_column: str = "text",
        on_truncation: Literal["ignore", "error"] = "ignore",
        prompt: str | None = None,
        prompt_name: str | None = None,
        activation: Activation | None = None,
        batch_tokens: int | None = None,
        **job: Unpack[JobKeywords],
    ) -> DatasetSummary:
        """Score the pairs of files into a file or a folder of shards: a row of scores each.

        ``load_vectors(output).scores`` reads them. ``column``, by default ``query``, and
        ``pair_column`` name the two texts. Other options: see :meth:`Embedder.encode_dataset`
        and :meth:`score`.
        """
        call = ScoreCall(
            prompt=prompt,
            prompt_name=prompt_name,
            activation=activation,
            batch_tokens=batch_tokens,
            on_truncation=on_truncation,
        )
        return run_over_files(
            *(self, inputs, output),
            task="scores",
            call=call,
            job={"column": "query", **job},
            pair_column=pair_column,
        )

    @property
    def name(self) -> str:
        """The path that the model was loaded from."""
        return self._path or "memory"

    def resolve(self, call: ScoreCall) -> ScoreOptions:
        """Check the options of a call and fill in the directory's settings for those not given."""
        settings, engine, chosen = self.settings, self.engine, call.activation
        check_on_truncation(call.on_truncation)
        if call.batch_size is not None:
            check_positive(call.batch_size, "batch_size")
        budget = default_batch_tokens(engine.spec, engine.device, engine.dtype)
        return ScoreOptions(
            prompt=resolve_prompt(
                *(call.prompt, call.prompt_name),
                *(settings.prompts, settings.default_prompt_name),
            ),
            activation=self.activation if chosen is None else check_activation(chosen),
            batch_tokens=resolve_batch_tokens(call.batch_tokens, budget),
            batch_size=call.batch_size,
            on_truncation=call.on_truncation,
            num_labels=self.num_labels,
        )

    def stored_dimension(self, options: ScoreOptions) -> int:
        """Return the number of scores of a pair."""
        return options.num_labels

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records: a classifier has no pooling of its own."""
        return {"pooling": [], "layers": []}

    def describe_options(self, options: ScoreOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe()

    def tokenize_window(
        self, texts: list[tuple[str, str]], first_row: int, options: ScoreOptions
    ) -> TokenizedWindow:
        """Tokenize a window of pairs."""
        firsts, seconds = unzip_pairs(texts)
        notice = TruncationNotice(options.on_truncation, limit=self.max_seq_length, row_name="pair")
        return self._tokenize(firsts, seconds, first_row, options, notice)

    def encode_window(self, tokenized: TokenizedWindow, options: ScoreOptions) -> ResultWindow:
        """Score a tokenized window of pairs."""
        start = time.perf_counter()
        scores = self._scores(tokenized, options)
        return ResultWindow.of(scores, tokenized, time.perf_counter() - start)

    def reload(self) -> Callable[[str, int], Ranker] | None:
        """Return a function that loads the model in another process; None without files."""
        if self._reload is None:
            return None
        return partial(self._reload, max_seq_length=self.max_seq_length, activation=self.activation)

    def _tokenize(
        self,
        firsts: list[str],
        seconds: list[str],
        first_row: int,
        options: ScoreOptions,
        notice: TruncationNotice,
    ) -> TokenizedWindow:
        start, prefix = time.perf_counter(), options.prompt
        if prefix:
            firsts = [prefix + one if isinstance(one, str) else one for one in firsts]
        encoding = self.tokenizer.encode_batch(
            firsts, seconds, max_length=self.max_seq_length, num_threads=self.engine.num_threads
        )
        notice.observe(np.asarray(encoding.truncated), first_row)
        spent = time.perf_counter() - start
        return TokenizedWindow(encoding=encoding, first_row=first_row, seconds=spent)

    def _scores(self, tokenized: TokenizedWindow, options: ScoreOptions) -> Scores:
        """Score tokenized pairs, float32 [n, C]. Raises :class:`NonFiniteVectorError`."""
        encoding, first_row = tokenized.encoding, tokenized.first_row
        scores = np.empty((len(encoding), self.num_labels), dtype=np.float32)
        for rows, found in compute_batches(
            *(self.engine, TokenRows.of(encoding)),
            partial(self.engine.scores, activation=options.activation),
            batch_tokens=options.batch_tokens,
            batch_size=options.batch_size,
            limit=self.memory_limit,
            numbers=first_row + np.arange(len(encoding)),
            row_name="pair",
        ):
            scores[rows] = found
        check_scores(scores, first_row)
        return scores

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
        batch_size: int | None = None,
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
            batch_size=batch_size,
            on_truncation=on_truncation,
        )
        return order_documents(scores, texts, top_k=top_k, return_documents=return_documents)


def _load_again(
    kind: type[Ranker],
    path: str,
    request: EngineRequest,
    device: str,
    num_threads: int,
    *,
    max_seq_length: int | None,
    activation: Activation | None,
    engine: EngineChoice,
    hub: HubKeywords,
) -> Ranker:
    return kind.from_pretrained(
        *(path, device, request.dtype, request.quantization),
        max_seq_length=max_seq_length,
        activation=activation,
        num_threads=num_threads,
        engine=engine,
        **hub,
    )


def check_top_k(top_k: int | None) -> None:
    """Raise :class:`InputError` unless it is a positive whole number or None."""
    if top_k is not None:
        check_positive(top_k, "top_k")


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


def check_scores(scores: Scores, first_row: int = 0) -> None:
    """Raise :class:`NonFiniteVectorError` for scores [N] or [N, C] that are NaN or infinite.

    ``first_row``: the row of the first score in its stream.
    """
    rows = scores[:, None] if scores.ndim == 1 else scores
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1)) + first_row
    if len(broken):
        raise NonFiniteVectorError(
            f"the scores of {len(broken)} pairs are NaN or infinite, the first is pair "
            f"{broken[0]}: the model's numbers overflow or are damaged",
            rows=[int(row) for row in broken],
        )


def unzip_pairs(pairs: Iterable[object]) -> tuple[list[str], list[str]]:
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise TextError(f"pairs must be pairs of texts, got one {type(pairs).__name__}")
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
        path = weights_directory(folder) / "config.json"
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
