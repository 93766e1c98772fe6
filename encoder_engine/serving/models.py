"""A served model: its tasks, settings, and the cost of requests."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.embedding.causal_ranker import CausalRanker
from encoder_engine.embedding.embedder import Embedder
from encoder_engine.embedding.hybrid import HybridEmbedder
from encoder_engine.embedding.limits import default_batch_tokens
from encoder_engine.embedding.multi_vector import MultiVectorEmbedder
from encoder_engine.embedding.queries import QueryMethods
from encoder_engine.embedding.static.embedder import StaticEmbedder
from encoder_engine.embedding.static.parts import StaticEngine
from encoder_engine.embedding.steps.window import TokenizedWindow
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.serving.request import Key
from encoder_engine.serving.rows import rows_of_ids
from encoder_engine.serving.tasks import CallOptions, steps_of
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine.embedding.steps.window import WindowRows
    from encoder_engine.serving.tasks import Steps, Task, Text

__all__ = ["CallOptions", "ServedModel"]

# Tokens of a batch of a table, which adds rows: 20 ms of a core are about a million.
STATIC_BATCH_TOKENS = 2**20
# Options of calls that are kept; their names of prompts and dimensions are the model's.
MOST_OPTIONS = 1024
# The pooling modes that TEI names otherwise.
TEI_POOLING = {"lasttoken": "last_token"}
# A document has some 200 tokens with a weight, of 8 bytes with its index.
SPARSE_BYTES = 2000


class ServedModel:
    """A model under its name, with the tasks that it has.

    Raises :class:`UnsupportedFeatureError` for an object that is no embedder, sparse embedder,
    multi-vector embedder or ranker.
    """

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model = name, model
        self._steps = steps_of(model)
        wrapped = isinstance(model, MultiVectorEmbedder | HybridEmbedder)
        self.parts: Any = model.embedder if wrapped else model
        self.tokenizer: Tokenizer = self.parts.tokenizer
        self._keys: dict[tuple[Task, CallOptions], Key] = {}
        self._distinct: dict[tuple[Task, Any, str | None], Key] = {}
        self._by_side: dict[str, dict[Task, Steps]] = {}

    @property
    def engine(self) -> Any:
        """The engine that computes."""
        return self.parts.engine

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, the model's own first."""
        return tuple(self._steps)

    @property
    def max_length(self) -> int | None:
        """Tokens kept of each text; None: no limit."""
        limit: int | None = self.parts.max_seq_length
        return limit

    @cached_property
    def dimension(self) -> int | None:
        """The features of a vector; None for scores."""
        source = self.parts if isinstance(self.model, HybridEmbedder) else self.model
        dimension: int | None = getattr(source, "dimension", None)
        return dimension

    @property
    def pooling(self) -> str:
        """The pooling mode of an embedder as TEI names it; several are joined by ``+``."""
        if isinstance(self.parts, StaticEmbedder):
            return "mean"
        return "+".join(TEI_POOLING.get(mode, mode) for mode in self.parts.recipe.pooling)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts."""
        parts = self.parts
        prompts: Mapping[str, str] = (
            parts.prompts if isinstance(parts, QueryMethods) else parts.settings.prompts
        )
        return prompts

    @property
    def labels(self) -> list[str]:
        """The names of a classifier's labels; a causal reranker has one, by transformers' name."""
        if isinstance(self.model, CausalRanker):
            return ["LABEL_0"]
        return [name for _, name in sorted(self.model.model.id2label.items())]

    @cached_property
    def batch_tokens(self) -> int:
        """The most tokens of a batch."""
        engine = self.engine
        if isinstance(engine, StaticEngine):
            return STATIC_BATCH_TOKENS
        return default_batch_tokens(engine.spec, engine.device, engine.dtype)

    def check_task(self, task: Task) -> None:
        """Raise :class:`UnsupportedFeatureError` for a task that the model lacks."""
        if task not in self._steps:
            raise UnsupportedFeatureError(
                f"the model {self.name!r} has no task {task!r}; it has {', '.join(self.tasks)}"
            )

    def prepare(self, key: Key, texts: Sequence[Text]) -> WindowRows:
        """Tokenize texts. Exceptions: those of the model's own method."""
        if np.ndarray in map(type, texts):
            return self._rows_of_ids(texts, key.options)
        return self._steps_of(key.truncation_side)[key.task].prepare(list(texts), key.options)

    def key(self, task: Task, options: CallOptions) -> Key:
        """Return the key of a task with options, the same one for equal options.

        Exceptions: those of the model's own method.
        """
        known = self._keys.get((task, options))
        if known is not None:
            return known
        side = options.truncation_side
        resolved = self._steps[task].resolve(options)
        if len(self._keys) >= MOST_OPTIONS:
            self._keys.clear()
            self._distinct.clear()
        found = self._distinct.setdefault(
            (task, resolved, side), Key(self.name, task, resolved, side)
        )
        self._keys[task, options] = found
        return found

    def _steps_of(self, side: Literal["left", "right"] | None) -> dict[Task, Steps]:
        """Return the tasks with a tokenizer that cuts an end of long texts."""
        if side in (None, self.tokenizer.spec.truncation_side):
            return self._steps
        if side not in self._by_side:
            self._by_side[side] = steps_of(_cutting(self.model, side))
        return self._by_side[side]

    def _rows_of_ids(self, rows: Sequence[Any], resolved: Any) -> WindowRows:
        if not isinstance(self.parts, Embedder):
            raise UnsupportedFeatureError(f"the model {self.name!r} takes no token ids; send texts")
        if resolved.prompt:
            raise InputError("token ids have no prompt, which this call puts first; send texts")
        vocab_size = self.engine.spec.embedding.vocab_size
        return rows_of_ids(rows, vocab_size=vocab_size, max_length=self.max_length)

    def compute(self, task: Task, rows: WindowRows, options: Any) -> Any:
        """Compute rows: float32 [n, D] of vectors and scores, else a list of each row's result."""
        window = TokenizedWindow(encoding=rows, first_row=0, seconds=0.0)
        return self._steps[task].compute(window, options)

    def answer_bytes(self, task: Task, lengths: Sequence[int]) -> int:
        """Return the bytes of the results of rows of these tokens; for sparse vectors about."""
        if task == "sparse":
            return SPARSE_BYTES * len(lengths)
        if task in ("rank", "classify"):
            return 4 * len(lengths) * len(self.labels)
        width = self._width if self.dimension is None else self.dimension
        return 4 * width * (sum(lengths) if task == "tokens" else len(lengths))

    def costs(self, lengths: Sequence[int]) -> list[float]:
        """Return the cost of rows of these tokens: the tokens, and a quadratic term of attention.

        A list: arrays of one number, which most requests have, take four times as long.
        """
        if isinstance(self.engine, StaticEngine):
            # A text without a token costs something too.
            return [length + 1.0 for length in lengths]
        scale = 6.0 * self._width
        return [length * (1.0 + length / scale) for length in lengths]

    @cached_property
    def _width(self) -> int:
        width: int = self.engine.spec.width
        return width


def _cutting(model: Any, side: Literal["left", "right"]) -> Any:
    """Return a model whose tokenizer cuts an end of long texts; it shares the weights."""
    found = copy(model)
    if isinstance(model, MultiVectorEmbedder | HybridEmbedder):
        found.embedder = _cutting(model.embedder, side)
        return found
    tokenizer = Tokenizer(replace(model.tokenizer.spec, truncation_side=side))
    if isinstance(model, StaticEmbedder):
        found.model = replace(model.model, tokenizer=tokenizer)
    else:
        found.tokenizer = tokenizer
    return found
