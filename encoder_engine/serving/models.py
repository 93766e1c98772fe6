"""Splits a model's methods in two for a service: tokenize on admission, compute in batches.

Each task of a model is a pair of functions: ``prepare`` tokenizes the texts of a request and fixes
their options, ``compute`` embeds or scores rows of any requests with equal options. Both are those
of the model's own methods, so a served text has the bytes of a direct call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from encoder_engine.embedding import Embedder, MultiVectorEmbedder, Ranker, SparseEmbedder
from encoder_engine.embedding.limits import default_batch_tokens
from encoder_engine.embedding.multi_vector import TokensJob
from encoder_engine.embedding.options import EncodeCall
from encoder_engine.embedding.queries import document_prompt, query_prompt
from encoder_engine.embedding.ranker import ScoreCall
from encoder_engine.embedding.sparse import SparseCall
from encoder_engine.embedding.steps.token_vectors import embed_token_window
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.embedding.steps.window import TokenizedWindow, tokenize_texts
from encoder_engine.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from encoder_engine.embedding.options import OnTruncation
    from encoder_engine.embedding.steps.window import WindowRows
    from encoder_engine.text import Tokenizer

__all__ = ["TASKS", "CallOptions", "Prepared", "ServedModel", "Task"]

Task = Literal["embed", "sparse", "tokens", "rank", "classify"]
TASKS: tuple[Task, ...] = ("embed", "sparse", "tokens", "rank", "classify")
Text = str | tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """The options of a request; each model reads those of its task.

    prompt_name: the name of a prompt of the model; None: that of ``input_type``, or the default.
    input_type: ``"query"`` or ``"document"``.
    normalize: vectors have length 1; None: the model's setting.
    dimensions: the leading features to keep; None: the model's setting.
    refuses_long: a text longer than the model's limit is an error.
    raw_scores: scores are logits.
    """

    prompt_name: str | None = None
    input_type: Literal["query", "document"] | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    refuses_long: bool = False
    raw_scores: bool = False

    @property
    def on_truncation(self) -> OnTruncation:
        """The ``on_truncation`` of the model's own methods."""
        return "error" if self.refuses_long else "ignore"


class Prepared(NamedTuple):
    """The tokenized texts of a request; texts of equal ``options`` may share a batch."""

    rows: WindowRows
    options: Hashable


class _Steps(NamedTuple):
    """A task of a model.

    resolve: the options of a request as the model's methods resolve them.
    prepare: tokenizes texts.
    compute: results of rows, one a row.
    """

    resolve: Callable[[CallOptions], Any]
    prepare: Callable[[list[Any], int, Any], TokenizedWindow]
    compute: Callable[[TokenizedWindow, Any], Any]


class ServedModel:
    """A model under its name, with the tasks that it has.

    Raises :class:`UnsupportedFeatureError` for an object that is no embedder, sparse embedder,
    multi-vector embedder or ranker.
    """

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model = name, model
        self._steps = _steps_of(model)
        self.engine: Any = _parts_of(model).engine
        self.tokenizer: Tokenizer = _parts_of(model).tokenizer

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, the model's own first."""
        return tuple(self._steps)

    @property
    def max_length(self) -> int | None:
        """Tokens kept of each text; None: no limit."""
        limit: int | None = _parts_of(self.model).max_seq_length
        return limit

    @property
    def dimension(self) -> int | None:
        """The features of a vector; None for scores."""
        dimension: int | None = getattr(self.model, "dimension", None)
        return dimension

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts."""
        parts = _parts_of(self.model)
        prompts: Mapping[str, str] = (
            parts.prompts if isinstance(parts, Embedder) else parts.settings.prompts
        )
        return prompts

    @property
    def labels(self) -> list[str]:
        """The names of a classifier's labels."""
        return [name for _, name in sorted(self.model.model.id2label.items())]

    @property
    def batch_tokens(self) -> int:
        """The most tokens of a batch."""
        engine = self.engine
        return default_batch_tokens(engine.spec, engine.device, engine.dtype)

    def check_task(self, task: Task) -> None:
        """Raise :class:`UnsupportedFeatureError` for a task that the model lacks."""
        if task not in self._steps:
            raise UnsupportedFeatureError(
                f"the model {self.name!r} has no task {task!r}; it has {', '.join(self.tasks)}"
            )

    def prepare(self, task: Task, texts: Sequence[Text], options: CallOptions) -> Prepared:
        """Tokenize the texts of a request. Exceptions: those of the model's own method."""
        steps = self._steps[task]
        resolved = steps.resolve(options)
        window = steps.prepare(list(texts), 0, resolved)
        return Prepared(window.encoding, resolved)

    def compute(self, task: Task, rows: WindowRows, options: Any) -> Any:
        """Compute rows: float32 [n, D] of vectors and scores, else a list of each row's result."""
        window = TokenizedWindow(encoding=rows, first_row=0, seconds=0.0)
        return self._steps[task].compute(window, options)

    def answer_bytes(self, task: Task, rows: WindowRows) -> int:
        """Return the bytes of the results of rows; of sparse vectors at most these."""
        width = self.engine.spec.width if self.dimension is None else self.dimension
        if task == "tokens":
            return 4 * width * int(np.sum(rows.lengths))
        if task == "sparse":
            # A document has some 200 tokens with a weight, of 8 bytes with its index.
            return 2000 * len(rows)
        return 4 * len(rows) * (width if task == "embed" else len(self.labels))

    def costs(self, rows: WindowRows) -> list[float]:
        """Return the cost of each row: tokens, and more for the products of attention."""
        lengths = np.asarray(rows.lengths, dtype=np.float64)
        found: list[float] = (lengths * (1.0 + lengths / (6.0 * self.engine.spec.width))).tolist()
        return found


def _parts_of(model: Any) -> Any:
    """Return the object with the engine, the tokenizer and the prompts of a model."""
    return model.embedder if isinstance(model, MultiVectorEmbedder) else model


def _steps_of(model: Any) -> dict[Task, _Steps]:
    if isinstance(model, Embedder):
        return {
            "embed": _Steps(
                partial(_encode_options, model), model.tokenize_window, partial(_vectors, model)
            ),
            "tokens": _Steps(
                partial(_token_options, model), model.tokenize_window, partial(_tokens, model)
            ),
        }
    if isinstance(model, MultiVectorEmbedder):
        return {"tokens": _Steps(partial(_kind_options, model), *_by_kind(model))}
    if isinstance(model, SparseEmbedder):
        return {
            "sparse": _Steps(
                partial(_sparse_options, model), model.tokenize_window, partial(_sparse, model)
            )
        }
    if isinstance(model, Ranker):
        steps = _Steps(
            partial(_score_options, model), partial(_texts_or_pairs, model), partial(_scores, model)
        )
        return {"rank": steps, "classify": steps} if model.num_labels == 1 else {"classify": steps}
    raise UnsupportedFeatureError(
        f"{type(model).__name__} cannot be served; serve an Embedder, a SparseEmbedder, a "
        "MultiVectorEmbedder or a Ranker"
    )


def _prompt_name(prompts: Mapping[str, str], options: CallOptions) -> str | None:
    """Choose the prompt that a request names, by name or by ``input_type``, where there is one."""
    if options.prompt_name is not None or options.input_type is None:
        return options.prompt_name
    return query_prompt(prompts) if options.input_type == "query" else document_prompt(prompts)


def _encode_options(model: Embedder, options: CallOptions) -> Any:
    return model.resolve(
        EncodeCall(
            prompt_name=_prompt_name(model.prompts, options),
            normalize_embeddings=options.normalize,
            truncate_dim=options.dimensions,
            on_truncation=options.on_truncation,
        )
    )


def _token_options(model: Embedder, options: CallOptions) -> Any:
    return model.resolve(
        EncodeCall(
            prompt_name=_prompt_name(model.prompts, options),
            normalize_embeddings=bool(options.normalize),
            on_truncation=options.on_truncation,
        )
    )


def _sparse_options(model: SparseEmbedder, options: CallOptions) -> Any:
    call = SparseCall(
        prompt_name=_prompt_name(model.settings.prompts, options),
        on_truncation=options.on_truncation,
        route="document",
    )
    return model.resolve(call)


def _score_options(model: Ranker, options: CallOptions) -> Any:
    return model.resolve(
        ScoreCall(
            prompt_name=options.prompt_name,
            activation="identity" if options.raw_scores else None,
            on_truncation=options.on_truncation,
        )
    )


def _kind_options(model: MultiVectorEmbedder, options: CallOptions) -> Any:
    kind = options.input_type or "document"
    call = EncodeCall(
        prompt_name=kind,
        normalize_embeddings=model.normalized,
        on_truncation=options.on_truncation,
    )
    return kind, model.embedder.resolve(call)


def _by_kind(model: MultiVectorEmbedder) -> tuple[Any, Any]:
    jobs = {"document": TokensJob(model, "document"), "query": TokensJob(model, "query")}

    def prepare(texts: list[str], first_row: int, options: Any) -> TokenizedWindow:
        return jobs[options[0]].tokenize_window(texts, first_row, options[1])

    def compute(window: TokenizedWindow, options: Any) -> Any:
        found = jobs[options[0]].encode_window(window, options[1]).vectors
        return [found[row] for row in range(len(found))]

    return prepare, compute


def _vectors(model: Embedder, window: TokenizedWindow, options: Any) -> Any:
    return model.encode_window(window, options).vectors


def _tokens(model: Embedder, window: TokenizedWindow, options: Any) -> Any:
    found = embed_token_window(model, window, options)
    return [found[row] for row in range(len(found))]


def _sparse(model: SparseEmbedder, window: TokenizedWindow, options: Any) -> Any:
    found = model.encode_window(window, options).vectors
    return [found.row(row) for row in range(len(found))]


def _texts_or_pairs(
    model: Ranker, texts: list[Text], first_row: int, options: Any
) -> TokenizedWindow:
    """Tokenize pairs, or texts that are classified alone."""
    if not all(isinstance(text, str) for text in texts):
        return model.tokenize_window(texts, first_row, options)  # type: ignore[arg-type]
    return tokenize_texts(
        model.tokenizer,
        texts,  # type: ignore[arg-type]
        first_row,
        prompt=options.prompt,
        num_prompt_tokens=0,
        max_length=model.max_seq_length,
        num_threads=model.engine.num_threads,
        notice=TruncationNotice(options.on_truncation, limit=model.max_seq_length),
    )


def _scores(model: Ranker, window: TokenizedWindow, options: Any) -> Any:
    return model.encode_window(window, options).vectors
