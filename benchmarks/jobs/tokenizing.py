"""The tasks of the tokenizer benchmarks, with one form of call for all libraries.

A library defines a :class:`Way` for each form of output; everything else is here. Workers import
this module in any environment, so it needs only numpy.
"""

from __future__ import annotations

import hashlib
import importlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks.measuring.case import Work

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = list[npt.NDArray[np.int64]]

Form = Literal["arrays", "lists", "sentence", "matrix", "offsets", "files"]
Task = Literal["batch", "stream", "stream end", "load"]
Model = Literal["WordPiece", "Unigram", "BPE"]
# Texts that a stream hands over at once.
STREAM_BATCH = 128


@dataclass(frozen=True, kw_only=True)
class PieceFile:
    """A SentencePiece model beside a tokenizer.json, and how the model's ids become the json's.

    ``ids`` maps some ids; ``shift`` is added to all others.
    """

    path: str
    shift: int = 0
    ids: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class TokenizerJob:
    """Texts to tokenize with the tokenizer.json ``file``.

    - ``model``: what the file holds.
    - ``form``: the output: packed or single arrays of ids, lists of ints, lists for one text, a
      matrix of ``max_length`` columns with its mask, ids with character offsets, or arrays of the
      lines of a file.
    - ``task``: the same batch in every call; a ``stream`` of texts, each seen once; its last
      quarter; or loading the file until the first text is tokenized.
    - ``judged``: the texts of the gate.
    - ``before``, ``after``: the template's ids, for libraries without a template.
    """

    file: str
    model: Model
    before: tuple[int, ...]
    after: tuple[int, ...]
    pieces: PieceFile | None
    form: Form
    task: Task
    texts: tuple[str, ...]
    judged: tuple[str, ...]
    max_length: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class Way:
    """A library's call that gives one form of output, such as lists: ``call(texts)`` is timed.

    ``rows(result)``: turns what the call returned into one array of ids per text, for the gate.
    The form "files" passes the path of a file with a text in each line instead of texts.
    The call for "sentence" encodes one text after another and returns the last one's ids.
    """

    call: Callable[[list[str]], Any]
    rows: Callable[[Any], Rows]


Ways = Mapping[Form, Way]
Load = Callable[[TokenizerJob], Ways]


def build(load: Load, job: TokenizerJob, *, modules: Sequence[str] = ()) -> Work:
    """Load a library's tokenizer and return its timed call and the gate's.

    ``modules``: imported beforehand.
    """
    for module in modules:
        importlib.import_module(module)
    if job.task == "load":
        return _loading(load, job)
    way = load(job)[job.form]
    if job.task == "batch":
        return Work(
            call=partial(way.call, _given(job, job.texts)), answer=lambda: _judged(way, job)
        )
    timed = timed_texts(job)
    for batch in _batches(job.texts[: len(job.texts) - len(timed)]):
        way.call(batch)
    batches, whole = _batches(timed), _batches(job.texts)

    def stream() -> None:
        for batch in batches:
            way.call(batch)

    return Work(
        call=stream, answer=lambda: [row for batch in whole for row in way.rows(way.call(batch))]
    )


def timed_texts(job: TokenizerJob) -> tuple[str, ...]:
    """Return the texts that a timed call tokenizes: all, or the last quarter of a stream."""
    if job.task != "stream end":
        return job.texts
    return job.texts[len(job.texts) * 3 // 4 :]


def _batches(texts: Sequence[str]) -> list[list[str]]:
    return [list(texts[i : i + STREAM_BATCH]) for i in range(0, len(texts), STREAM_BATCH)]


def _loading(load: Load, job: TokenizerJob) -> Work:
    held: list[Ways] = []  # what is let go of is not resident

    def load_and_encode() -> Any:
        held.append(load(job))
        return held[-1][job.form].call(list(job.texts))

    def answer() -> Rows:
        result = load_and_encode()
        return held[-1][job.form].rows(result)

    return Work(call=load_and_encode, answer=answer)


def _judged(way: Way, job: TokenizerJob) -> Rows:
    """Return the ids of the timed texts and of those that only the gate uses."""
    if job.form == "sentence":  # whose call returns the last text's ids
        return [way.rows(way.call([text]))[0] for text in dict.fromkeys(job.texts + job.judged)]
    return [
        row
        for texts in (job.texts, job.judged)
        if texts
        for row in way.rows(way.call(_given(job, texts)))
    ]


def _given(job: TokenizerJob, texts: Sequence[str]) -> Any:
    """Return the argument of a call: the texts, or the path of a file that is deleted at exit."""
    if job.form != "files":
        return list(texts)
    path = Path(folder().name) / hashlib.sha256("\n".join(texts).encode()).hexdigest()
    path.with_suffix(".txt").write_text("\n".join(texts), encoding="utf-8", newline="\n")
    return str(path.with_suffix(".txt"))


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Return this process's temporary folder for files to tokenize; it is deleted at exit."""
    return tempfile.TemporaryDirectory(prefix="encoder-engine-bench-")


def truth(load: Load, job: TokenizerJob) -> Rows:
    """Compute the ids, an array for each text, that the gate compares every candidate's with."""
    whole = replace(job, task="stream") if job.task == "stream end" else job
    rows: Rows = build(load, whole).answer()
    return rows


def list_rows(rows: Sequence[Sequence[int]]) -> Rows:
    """Convert lists of ids to arrays, one per text."""
    return [np.asarray(row, dtype=np.int64) for row in rows]


def with_template(job: TokenizerJob, rows: Iterable[Sequence[int]]) -> Rows:
    """Convert lists of ids to arrays, with the template's ids added before and after each."""
    return list_rows([[*job.before, *row, *job.after] for row in rows])


def one_row(row: Sequence[int]) -> Rows:
    """Convert the ids of a single text to a list of one array."""
    return list_rows([row])


def packed_rows(ids: npt.NDArray[np.integer[Any]], starts: npt.NDArray[np.integer[Any]]) -> Rows:
    """Split packed ids into arrays, one per text; ``starts``: where each begins, and the total."""
    return [part.astype(np.int64) for part in np.split(ids, starts[1:-1].astype(np.int64))]


def matrix_rows(matrices: tuple[npt.NDArray[Any], npt.NDArray[Any]]) -> Rows:
    """Return an array for each text: its row of the ids, then its row of the mask."""
    ids, mask = matrices
    return list(np.concatenate([ids, mask], axis=1).astype(np.int64))


def offset_rows(ids: Sequence[Sequence[int]], offsets: Sequence[Any]) -> Rows:
    """Return an array for each text: the id, start and stop of each token, flattened."""
    joined = []
    for row, places in zip(ids, offsets, strict=True):
        spans = np.asarray(places, dtype=np.int64).reshape(-1, 2)
        joined.append(np.column_stack([np.asarray(row, dtype=np.int64), spans]).ravel())
    return joined
