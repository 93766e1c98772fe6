"""A request to a service, as it goes from its arrival to its answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.serving.scheduler import Waiting

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Sequence

    from encoder_engine.packing.token_rows import WindowRows
    from encoder_engine.serving.tasks import Task, Text

__all__ = ["ANSWERED", "Answer", "Key", "Request", "count_characters", "size_of"]


# Takes the place of a request's future when its call has ended. The traceback of an exception
# refers to the request: if the request referred to the exception, both would be left to the garbage
# collector.
ANSWERED: Any = Future()
ANSWERED.set_result(None)


class Answer(NamedTuple):
    """The results of a request.

    results: float32 [N, D] of vectors, [N] of a ranker's scores, [N, C] of labels' scores; else a
        list: ``(indices, values)`` of sparse vectors, float32 [n, D] of tokens, results of a
        pipeline. Of a single text instead of a list, the first entry alone.
    num_tokens: tokens that were computed, special ones and prompts included.
    truncated: the indices of the texts that were truncated.
    seconds: the time of each stage: tokenize, queue, compute.
    num_characters: characters of the texts.
    num_bytes: bytes of the results.
    """

    results: Any
    num_tokens: int
    truncated: tuple[int, ...]
    seconds: dict[str, float]
    num_characters: int
    num_bytes: int


@dataclass(frozen=True, eq=False)
class Key:
    """The model, the task and the options that all texts of a batch share.

    A model makes one key for equal options, so that keys are compared by identity: the hash of
    the options takes a microsecond.
    """

    model: str
    task: Task
    options: Hashable
    truncation_side: Literal["left", "right"] | None = None


@dataclass(eq=False, kw_only=True)
class Request(Waiting):
    """A request between its arrival and its answer.

    seconds: the request's timeout.
    done: a future, set when every text is computed or one has failed; :data:`ANSWERED` in the end.
    rows: the tokens of its texts and of texts of other requests; None until it is tokenized.
    first_row: the index of its first text in ``rows``.
    num_open: the number of texts that are not computed yet.
    num_bytes: bytes of its results that the admission counts.
    """

    texts: Sequence[Text]
    seconds: float
    arrived_at: float
    done: asyncio.Future[None]
    results: list[Any] = field(default_factory=list)
    # The fields below are no arguments: every argument of a request takes 0.1 us.
    costs: Sequence[float] = field(init=False, default=())
    num_tokens: Sequence[int] = field(init=False, default=())
    next_text: int = field(init=False, default=0)
    rows: WindowRows | None = field(init=False, default=None)
    first_row: int = field(init=False, default=0)
    total_tokens: int = field(init=False, default=0)
    num_open: int = field(init=False, default=0)
    num_characters: int = field(init=False, default=0)
    num_bytes: int = field(init=False, default=0)
    queued_at: float = field(init=False, default=0.0)
    started_at: float | None = field(init=False, default=None)
    compute_seconds: float = field(init=False, default=0.0)
    truncated: tuple[int, ...] = field(init=False, default=())

    @property
    def stage(self) -> str:
        """The stage of the request: tokenize, queue or compute."""
        if self.rows is None:
            return "tokenize"
        return "queue" if self.started_at is None else "compute"

    def answer(self) -> Answer:
        """Return the answer, with the results of all batches joined in the order of the texts."""
        assert isinstance(self.key, Key)
        parts = [result for _, result in sorted(self.results, key=itemgetter(0))]
        results: Any
        if self.key.task in ("sparse", "tokens", "predict"):
            results = [row for part in parts for row in part]
        else:
            results = parts[0] if len(parts) == 1 else np.concatenate(parts)
        started = self.queued_at if self.started_at is None else self.started_at
        return Answer(
            results,
            self.total_tokens,
            self.truncated,
            {
                "tokenize": self.queued_at - self.arrived_at,
                "queue": started - self.queued_at,
                "compute": self.compute_seconds,
            },
            self.num_characters,
            self.num_bytes,
        )


def size_of(text: Text) -> int:
    """Return the bytes in memory of a text, a pair, a dict of texts or an array of token ids."""
    if isinstance(text, np.ndarray):
        return text.nbytes
    if isinstance(text, Mapping):
        return sum(map(sys.getsizeof, text.values()))
    return sys.getsizeof(text) if isinstance(text, str) else sum(map(sys.getsizeof, text))


def count_characters(text: Text) -> int:
    """Return the number of characters of a text or of a pair of texts; 0 for token ids."""
    if isinstance(text, np.ndarray):
        return 0
    if isinstance(text, Mapping):
        return sum(len(one) for one in text.values() if isinstance(one, str))
    return len(text) if isinstance(text, str) else sum(map(len, text))
