"""A served model: the tasks it can do, its settings, and what its texts cost to compute."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.kinds.windows import TokenizedWindow
from encoder_engine.serving.request import Key
from encoder_engine.serving.rows import rows_of_ids
from encoder_engine.serving.tasks import CallOptions, kinds_of, resolve_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from encoder_engine.kinds.kind import Kind
    from encoder_engine.packing.token_rows import WindowRows
    from encoder_engine.serving.tasks import Task, Text
    from encoder_engine.text import Tokenizer

__all__ = ["CallOptions", "ServedModel"]

# The most keys that are kept. Only options that the model accepts (prompts, dimensions) have one.
MOST_OPTIONS = 1024
# The pooling modes that TEI (Text Embeddings Inference) names otherwise.
TEI_POOLING = {"lasttoken": "last_token"}
# The estimate for a sparse vector: a document has some 200 tokens with a weight, and each takes 8
# bytes with its index.
SPARSE_BYTES = 2000
# The estimate for a result of a pipeline: it may have one for every token, a dict of strings and
# numbers.
PREDICTED_BYTES = 500


class ServedModel:
    """A model that is served under a name, and the tasks that it can do.

    Raises :class:`UnsupportedFeatureError` for an object that is no embedder of any kind, ranker or
    pipeline.
    """

    def __init__(self, name: str, model: Any) -> None:
        self.name, self.model = name, model
        self._kinds = kinds_of(model)
        self.tokenizer: Tokenizer = model.tokenizer
        self._keys: dict[tuple[Task, CallOptions], Key] = {}
        self._distinct: dict[tuple[Task, Any, str | None], Key] = {}
        self._by_side: dict[str, dict[Task, Kind]] = {}

    @property
    def engine(self) -> Any:
        """The engine that computes the model's outputs."""
        return self.model.engine

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the model, its main task first."""
        return tuple(self._kinds)

    @property
    def max_length(self) -> int | None:
        """The most tokens of a text; longer texts are truncated or refused; None: no limit."""
        limit: int | None = self.model.max_seq_length
        return limit

    @cached_property
    def dimension(self) -> int | None:
        """The number of features of a vector; None for scores."""
        dimension: int | None = getattr(self.model, "dimension", None)
        return dimension

    @property
    def pooling(self) -> str:
        """The pooling mode of an embedder as TEI names it; several are joined by ``+``."""
        modes = getattr(self._kinds.get("embed"), "modes", ("mean",))
        return "+".join(TEI_POOLING.get(mode, mode) for mode in modes)

    @property
    def prompts(self) -> Mapping[str, str]:
        """The model's prompts, by name."""
        prompts: Mapping[str, str] = self.model.prompts
        return prompts

    def warm_up(self, text: str) -> tuple[Text, CallOptions]:
        """Return an input made of ``text`` and the options for a call that warms the model up."""
        options = CallOptions(refuses_long=False)
        if self.tasks == ("predict",):
            row, parameters = self.model.sample(text)
            return row, options._replace(parameters=json.dumps(parameters))
        # A causal reranker takes pairs alone.
        return (text, text) if self.tasks == ("rank",) else text, options

    @property
    def labels(self) -> list[str]:
        """The names of the scores that a ranker or classifier gives a text."""
        labels: list[str] = self.model.labels
        return labels

    @cached_property
    def batch_tokens(self) -> int:
        """The most tokens of a batch that the engine computes."""
        tokens: int = self.engine.batch_tokens
        return tokens

    def check_task(self, task: Task) -> None:
        """Raise :class:`UnsupportedFeatureError` for a task that the model lacks."""
        if task not in self._kinds:
            raise UnsupportedFeatureError(
                f"the model {self.name!r} has no task {task!r}; it has {', '.join(self.tasks)}"
            )

    def prepare(self, key: Key, texts: Sequence[Text]) -> WindowRows:
        """Tokenize texts for a task with options; raises what the model's own method raises."""
        kind = self._kinds_of(key.truncation_side)[key.task]
        if np.ndarray in map(type, texts):
            return self._rows_of_ids(kind, texts, key.options)
        return kind.tokenize_window(list(texts), 0, key.options).encoding

    def key(self, task: Task, options: CallOptions) -> Key:
        """Return the :class:`Key` of a task with options; equal options get the same object.

        Raises what the model's own method raises.
        """
        known = self._keys.get((task, options))
        if known is not None:
            return known
        side = options.truncation_side
        resolved = resolve_request(self._kinds[task], options)
        if len(self._keys) >= MOST_OPTIONS:
            self._keys.clear()
            self._distinct.clear()
        found = self._distinct.setdefault(
            (task, resolved, side), Key(self.name, task, resolved, side)
        )
        self._keys[task, options] = found
        return found

    def _kinds_of(self, side: Literal["left", "right"] | None) -> dict[Task, Kind]:
        """Return, by task, the :class:`Kind` that computes its results.

        side: the side at which texts are truncated; None: the side that the tokenizer states.
        """
        if side in (None, self.tokenizer.spec.truncation_side):
            return self._kinds
        if side not in self._by_side:
            self._by_side[side] = kinds_of(self.model.truncating(side))
        return self._by_side[side]

    def _rows_of_ids(self, kind: Kind, rows: Sequence[Any], resolved: Any) -> WindowRows:
        if not kind.takes_ids:
            raise UnsupportedFeatureError(f"the model {self.name!r} takes no token ids; send texts")
        if resolved.prompt:
            raise InputError("token ids have no prompt, which this call puts first; send texts")
        vocab_size = self.engine.spec.embedding.vocab_size
        return rows_of_ids(rows, vocab_size=vocab_size, max_length=self.max_length)

    def compute(self, task: Task, rows: WindowRows, options: Any) -> Any:
        """Compute tokenized texts: float32 [n, D] of vectors or scores, else a list of results."""
        window = TokenizedWindow(encoding=rows, first_row=0, seconds=0.0)
        kind = self._kinds[task]
        return kind.each(kind.compute_window(window, options).vectors)

    def answer_bytes(self, task: Task, lengths: Sequence[int]) -> int:
        """Return the bytes of the results for texts of these numbers of tokens.

        Sizes of sparse vectors and of pipelines' results are estimated.
        """
        if task == "sparse":
            return SPARSE_BYTES * len(lengths)
        if task == "predict":
            return PREDICTED_BYTES * (sum(lengths) + len(lengths))
        if task in ("rank", "classify"):
            return 4 * len(lengths) * len(self.labels)
        width = self._width if self.dimension is None else self.dimension
        return 4 * width * (sum(lengths) if task == "tokens" else len(lengths))

    def costs(self, lengths: Sequence[int]) -> list[float]:
        """Return the cost of computing each text: its tokens, and a quadratic term for attention.

        lengths: the number of tokens of each text. The result is a list and no array: for one text,
        which most requests have, an array takes four times as long.
        """
        if self.engine.name == "static":
            # A text without a token costs something too.
            return [length + 1.0 for length in lengths]
        scale = 6.0 * self._width
        return [length * (1.0 + length / scale) for length in lengths]

    @cached_property
    def _width(self) -> int:
        width: int = self.engine.spec.width
        return width
