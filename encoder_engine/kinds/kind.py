"""The base of the kinds of results, with the one loop from rows to results.

How it works: a stream of rows is cut into windows of 4,096 rows or 16 million characters, so that
memory is constant. The rows of a window are tokenized by all threads; this needs no device, so a
thread can do it for the next window while a GPU computes. They are grouped by length into batches
of at most ``batch_tokens`` tokens (``engine/batches.py``), which the engine computes without
padding. A kind states which outputs the engine computes, and makes results of these, in the order
of the rows. If a batch exceeds the device's memory, the token limit drops to half of that batch and
the remaining rows are grouped again; later calls keep the limit.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from encoder_engine.engine.batches import compute_batches
from encoder_engine.errors import InputError, NonFiniteVectorError
from encoder_engine.kinds.options import (
    OnTruncation,
    Options,
    check_on_truncation,
    check_positive,
    resolve_prompt,
)
from encoder_engine.kinds.progress import progress_bar
from encoder_engine.kinds.truncation import TruncationNotice
from encoder_engine.kinds.windows import (
    EmbeddedWindow,
    TokenizedWindow,
    first_rows,
    located_error,
    windows,
)
from encoder_engine.packing.token_rows import TokenRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from encoder_engine.engine.outputs import Output
    from encoder_engine.engine.protocol import Vectors
    from encoder_engine.packing.token_rows import RowArray, WindowRows
    from encoder_engine.text import Tokenizer

__all__ = ["Batches", "Kind", "refuse_non_finite"]


class Kind(ABC):
    """A kind of results, such as dense vectors, that a model computes from rows: texts or pairs.

    model: a :class:`Model`, which may need further attributes for some kinds.
    name: the name of the kind in stores and on the command line.
    row_name: the word for a row in messages, such as ``text``.
    action: the word for the computation on progress bars.
    requested: the options of a server's request that the kind supports, besides the prompt's name.
    noun: the words for the results in messages, such as ``vectors``.
    takes_ids: whether a server's client may send token ids instead of texts.
    has_routes: whether the option ``route`` distinguishes queries from documents.
    """

    name: ClassVar[str]
    row_name: ClassVar[str] = "text"
    action: ClassVar[str] = "Embedding"
    requested: ClassVar[tuple[str, ...]] = ("input_type",)
    noun: ClassVar[str] = "vectors"
    takes_ids: ClassVar[bool] = False
    has_routes: ClassVar[bool] = False

    def __init__(self, model: Any) -> None:
        self.model = model
        self.tokenizer: Tokenizer = model.tokenizer

    # What each kind defines.

    @abstractmethod
    def resolve(self, **keywords: Any) -> Options:
        """Validate the keywords of a call; return its options, by default the model's settings.

        Raises :class:`InputError` for an invalid value.
        """

    @abstractmethod
    def wanted(self, options: Any) -> tuple[Output, ...]:
        """Return what the engine is asked to compute for each batch, such as pooled vectors."""

    @abstractmethod
    def finish(self, window: TokenizedWindow, batches: Batches, options: Any) -> Any:
        """Compute the results of a window, which is consecutive rows, in the order of the rows.

        ``batches``: the rows' tokens; the engine computes a batch when it is iterated.
        """

    @abstractmethod
    def join(self, parts: list[Any], options: Any) -> Any:
        """Join the results of successive parts of the input; the list may be empty."""

    def tokenize(self, rows: list[Any], options: Any) -> WindowRows:
        """Tokenize rows (texts or pairs), each text together with the prompt before it."""
        texts = [options.prompt + text for text in rows] if options.prompt else rows
        return self.tokenizer.encode_batch(
            texts, max_length=self.limit(options), num_threads=self.model.engine.num_threads
        )

    def rows(self, encoding: WindowRows, options: Any) -> TokenRows:
        """Return the token rows that the engine computes, given the tokenizer's result."""
        del options
        return TokenRows.of(encoding)

    def limit(self, options: Any) -> int | None:
        """Return the most tokens of a row, to which it is truncated; None: no limit."""
        del options
        limit: int | None = self.model.max_seq_length
        return limit

    def needs_tokens(self, options: Any) -> bool:
        """Return whether a row without a token raises :class:`InputError`; else it has a result."""
        del options
        return True

    def notice(self, options: Any) -> TruncationNotice:
        """Return a counter of the call's truncated rows, which warns of them or raises an error."""
        return TruncationNotice(
            options.on_truncation, limit=self.limit(options), row_name=self.row_name
        )

    def stored_dimension(self, options: Any) -> int:
        """Return the number of features of the vector that is stored for a row or a token."""
        return cast("int", options.dimension)

    def describe(self, options: Any) -> dict[str, Any]:
        """Return what decides the results besides the engine, as JSON values.

        A run over files records them, and resumes only if they are the same.
        """
        del options
        return {"pooling": [], "layers": []}

    def each(self, results: Any) -> Any:
        """Return the results of a call in a form with one element per row: [n, D], or a list."""
        return results

    def characters(self, row: Any) -> int:
        """Return the number of characters of a row, a text or a pair of texts."""
        return len(row)

    def of_request(self, request: Any) -> dict[str, Any]:
        """Return a server request's arguments for :meth:`resolve`, without its prompt."""
        del request
        return {}

    # What all kinds do.

    def common_options(
        self,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        on_truncation: OnTruncation = "ignore",
    ) -> dict[str, Any]:
        """Validate the keywords that all kinds share, and fill in the model's settings."""
        model = self.model
        resolved = resolve_prompt(prompt, prompt_name, model.prompts, model.default_prompt_name)
        check_on_truncation(on_truncation)
        if batch_size is not None:
            check_positive(batch_size, "batch_size")
        if batch_tokens is not None:
            check_positive(batch_tokens, "batch_tokens")
        return {
            "prompt": resolved,
            "batch_tokens": self.default_batch_tokens if batch_tokens is None else batch_tokens,
            "batch_size": batch_size,
            "on_truncation": on_truncation,
        }

    @property
    def default_batch_tokens(self) -> int:
        """The most tokens of a batch, for calls that do not set it."""
        tokens: int = self.model.engine.batch_tokens
        return tokens

    def collect(
        self, rows: Iterator[Any], options: Any, *, count: int | None = None, shown: bool = False
    ) -> Any:
        """Compute the results of a stream of rows, join them, and warn of truncated rows.

        count: the number of rows, if known. shown: draw a progress bar on standard error, if that
        is a terminal.
        """
        notice = self.notice(options)
        with progress_bar(count, shown=shown, action=self.action) as advance:
            stream = self.stream(rows, options, notice, advance)
            parts = [window.vectors for window in stream]
        notice.warn()
        return self.join(parts, options)

    def stream(
        self,
        rows: Iterator[Any],
        options: Any,
        notice: TruncationNotice | None = None,
        advance: Callable[[int], None] = lambda _done: None,
    ) -> Iterator[EmbeddedWindow]:
        """Compute a stream of rows; yield the results window by window, with one window in memory.

        ``notice``: counts truncated rows; ``advance``: called with the number of rows that were
        finished since its last call.
        """
        notice, first_row = notice or self.notice(options), 0
        for window in windows(rows, self.characters):
            tokenized = self.tokenize_window(window, first_row, options, notice)
            yield self.compute_window(tokenized, options, advance)
            first_row += len(window)

    def tokenize_window(
        self, rows: list[Any], first_row: int, options: Any, notice: TruncationNotice | None = None
    ) -> TokenizedWindow:
        """Tokenize consecutive rows of a stream, without a device, and count the truncated rows.

        Raises :class:`TextError` for a value that is not a text, :class:`InputError` for a text all
        of whose tokens are left out of the pooling, and :class:`SequenceLengthError` for a
        truncated row with ``on_truncation="error"``. All name the row in the stream.
        """
        start, notice = time.perf_counter(), notice or self.notice(options)
        try:
            encoding = self.tokenize(rows, options)
        except InputError as error:
            raise located_error(error, rows, first_row) from None
        if self.needs_tokens(options):
            self._refuse_no_token(encoding, first_row, options.num_prompt_tokens)
        notice.observe(np.asarray(encoding.truncated), first_row)
        spent = time.perf_counter() - start
        return TokenizedWindow(encoding=encoding, first_row=first_row, seconds=spent)

    def _refuse_no_token(
        self, encoding: WindowRows, first_row: int, num_prompt_tokens: int
    ) -> None:
        """Raise :class:`InputError` for a text with no token but its prompt's.

        A text that follows its prompt without a space can merge into the prompt's tokens;
        sentence-transformers returns zeros for such a text.
        """
        is_empty = encoding.lengths <= num_prompt_tokens
        if not is_empty.any():
            return
        row = first_row + int(is_empty.argmax())
        if num_prompt_tokens:
            raise InputError(
                f"{self.row_name} {row} merges into the {num_prompt_tokens} tokens of its prompt: "
                "no token is left to pool; end the prompt with a space or a colon",
                row=row,
            )
        raise InputError(
            f"{self.row_name} {row} has no token at all, so there is nothing to compute; this "
            f"tokenizer adds no special tokens: leave empty {self.row_name}s out",
            row=row,
        )

    def compute_window(
        self,
        window: TokenizedWindow,
        options: Any,
        advance: Callable[[int], None] = lambda _done: None,
    ) -> EmbeddedWindow:
        """Compute the results of consecutive rows that :meth:`tokenize_window` returned.

        ``advance``: called with the number of rows that were finished since its last call.
        Raises :class:`NonFiniteVectorError` and :class:`DeviceMemoryError`.
        """
        start, encoding = time.perf_counter(), window.encoding
        rows = self.rows(encoding, options)
        batches = Batches(self, rows, window.first_row + np.arange(len(rows)), options, advance)
        results = self.finish(window, batches, options)
        return EmbeddedWindow(
            vectors=results,
            first_row=window.first_row,
            truncated=np.asarray(encoding.truncated),
            num_tokens=len(encoding.ids),
            num_padded_tokens=batches.num_padded_tokens,
            tokenize_seconds=window.seconds,
            encode_seconds=time.perf_counter() - start,
        )

    def reload(self) -> Callable[[str, int], Kind] | None:
        """Return a function that loads the model in another process and returns this kind of it.

        Its arguments are a device and a number of threads. None: the model was made in memory.
        """
        reload = self.model.reload()
        return None if reload is None else partial(_kind_of, reload, self.name)


class Batches:
    """Rows of tokens, grouped into batches, which the engine computes while they are iterated.

    Iteration yields, in any order of the batches, the indices of a batch's rows and the output
    arrays of :meth:`Kind.wanted`.

    numbers: the index of each row in the stream, for messages.
    num_padded_tokens: the number of tokens that the computed batches would have had with padding.
    """

    def __init__(
        self,
        kind: Kind,
        rows: TokenRows,
        numbers: RowArray,
        options: Any,
        advance: Callable[[int], None] = lambda _done: None,
    ) -> None:
        self.rows, self.numbers = rows, numbers
        self.num_padded_tokens = 0
        self._kind, self._options, self._advance = kind, options, advance

    def __iter__(self) -> Iterator[tuple[RowArray, tuple[Vectors, ...]]]:
        kind, options, lengths = self._kind, self._options, self.rows.lengths
        for batch, found in compute_batches(
            kind.model.engine,
            self.rows,
            kind.wanted(options),
            batch_tokens=options.batch_tokens,
            batch_size=options.batch_size,
            limit=kind.model.memory_limit,
            numbers=self.numbers,
            row_name=kind.row_name,
        ):
            self.num_padded_tokens += int(lengths[batch].max()) * len(batch)
            yield batch, found
            self._advance(len(batch))

    def scatter(self, batch: RowArray, computed: Vectors, found: Vectors) -> None:
        """Copy what was computed for a batch's tokens, [t, ...], to their places in ``found``.

        ``found``: [T, ...], for the tokens of all rows.
        """
        starts, place = self.rows.cu_seqlens, 0
        for row in batch:
            length = starts[row + 1] - starts[row]
            found[starts[row] : starts[row + 1]] = computed[place : place + length]
            place += length


def refuse_non_finite(
    is_finite: np.ndarray[Any, np.dtype[np.bool_]],
    numbers: RowArray,
    *,
    what: str = "vectors",
    row_name: str = "text",
    hint: str = "",
) -> None:
    """Raise :class:`NonFiniteVectorError` unless the results of all rows are finite.

    is_finite: bool [n], or [n, ...]. numbers: the index of each row in its stream. ``what``,
    ``row_name``, ``hint``: words for the message.
    """
    if is_finite.all():
        return
    broken = np.unique(numbers[~is_finite.reshape(len(is_finite), -1).all(axis=1)])
    raise NonFiniteVectorError(
        f"the {what} of {len(broken)} {row_name}s are NaN or infinite (rows {first_rows(broken)}): "
        f"the model's numbers overflow or are damaged{hint}",
        rows=[int(row) for row in broken],
    )


def _kind_of(reload: Callable[[str, int], Any], name: str, device: str, num_threads: int) -> Kind:
    kind: Kind = reload(device, num_threads).kinds()[name]
    return kind
