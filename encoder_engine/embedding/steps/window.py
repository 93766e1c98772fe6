"""Embeds a stream window by window: tokenize, batch by token budget, encode, pool, reorder.

How it works: :func:`tokenize_window` tokenizes up to 4,096 texts with all threads; it needs no
device, so a thread can run it for the next window while a GPU encodes. :func:`embed_rows` groups
the rows by length into batches of at most ``batch_tokens`` tokens (``batch_loop.py``). The engine
encodes a batch without padding and pools it to [b, D], and its vectors are written at the rows of
their texts, which restores the order. Where a batch exceeds the device's memory, the token limit
drops to half of that batch and the rows that are left are grouped anew; the limit stays for later
calls, and a single text that does not fit raises :class:`DeviceMemoryError`. Every window ends with
a check for NaN and infinity.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.steps.batch_loop import compute_batches
from encoder_engine.embedding.steps.batching import first_rows, windows
from encoder_engine.embedding.steps.truncation import TruncationNotice
from encoder_engine.errors import InputError, NonFiniteVectorError, TextError
from encoder_engine.packing.token_rows import TokenizedRows, TokenRows
from encoder_engine.strings import describe_surrogate, find_surrogate
from encoder_engine.vectors.precision import quantize_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.embedding.engines.engine import Vectors
    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.parts import EmbedderParts
    from encoder_engine.packing.token_rows import IdArray, RowArray
    from encoder_engine.text import Encoding, Tokenizer


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbeddedWindow:
    """The vectors and counts of consecutive texts of a stream.

    vectors: [n, D], in the order of the texts.
    first_row: the index of the first text in the stream.
    truncated: bool [n].
    num_tokens: tokens that were computed.
    num_padded_tokens: tokens that the same batches would have held with padding.
    tokenize_seconds, encode_seconds: the wall time of each stage.
    """

    vectors: np.ndarray[Any, np.dtype[Any]]
    first_row: int
    truncated: np.ndarray[Any, np.dtype[np.bool_]]
    num_tokens: int
    num_padded_tokens: int
    tokenize_seconds: float
    encode_seconds: float

    @property
    def num_truncated(self) -> int:
        """The number of truncated texts."""
        return int(self.truncated.sum())


class WindowRows(TokenizedRows, Protocol):
    """The tokens of a window, as far as its stages read them: an :class:`Encoding` is one."""

    def __len__(self) -> int:
        """Count the rows."""

    @property
    def lengths(self) -> IdArray:
        """Tokens of each row, int32 [B]."""

    @property
    def truncated(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True for each row whose text lost tokens, bool [B]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedWindow:
    """A window of tokenized texts; ``seconds``: the wall time of the tokenizer."""

    encoding: WindowRows
    first_row: int
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ResultWindow:
    """The results of consecutive rows that are not vectors [n, D], and their counts.

    vectors: the sparse vectors, the vectors of tokens, or the scores of n rows.
    Other fields: see :class:`EmbeddedWindow`.
    """

    vectors: Any
    num_tokens: int
    num_padded_tokens: int
    num_truncated: int
    tokenize_seconds: float
    encode_seconds: float

    @classmethod
    def of(cls, results: Any, tokenized: TokenizedWindow, seconds: float) -> Self:
        """Count the tokens of a window; the longest text decides those of padded batches."""
        encoding = tokenized.encoding
        longest = int(encoding.lengths.max(initial=0))
        return cls(
            vectors=results,
            num_tokens=len(encoding.ids),
            num_padded_tokens=longest * len(encoding),
            num_truncated=int(np.asarray(encoding.truncated).sum()),
            tokenize_seconds=tokenized.seconds,
            encode_seconds=seconds,
        )


def tokenized_windows(
    tokenizer: Tokenizer,
    texts: Iterator[str],
    *,
    prompt: str,
    num_prompt_tokens: int,
    max_length: int | None,
    num_threads: int,
    notice: TruncationNotice,
) -> Iterator[TokenizedWindow]:
    """Tokenize a stream of texts, each after the prompt, one window in memory at a time.

    ``notice`` counts the texts truncated to ``max_length``. Exceptions: see :func:`tokenize_texts`.
    """
    first_row = 0
    for window in windows(texts, len):
        yield tokenize_texts(
            tokenizer,
            window,
            first_row,
            prompt=prompt,
            num_prompt_tokens=num_prompt_tokens,
            max_length=max_length,
            num_threads=num_threads,
            notice=notice,
        )
        first_row += len(window)


def embed_windows(
    parts: EmbedderParts, texts: Iterator[str], options: EncodeOptions, notice: TruncationNotice
) -> Iterator[EmbeddedWindow]:
    """Embed a stream of texts, one window in memory at a time."""
    tokenized = tokenized_windows(
        parts.tokenizer,
        texts,
        prompt=options.prompt,
        num_prompt_tokens=options.num_prompt_tokens,
        max_length=parts.max_seq_length,
        num_threads=parts.engine.num_threads,
        notice=notice,
    )
    for window in tokenized:
        yield encode_window(parts, window, options)


def embed_window(
    parts: EmbedderParts, window: list[str], first_row: int, options: EncodeOptions
) -> EmbeddedWindow:
    """Embed the texts of one window; its first text is row ``first_row`` of the stream."""
    return encode_window(parts, tokenize_window(parts, window, first_row, options), options)


def tokenize_window(
    parts: EmbedderParts, window: list[str], first_row: int, options: EncodeOptions
) -> TokenizedWindow:
    """Tokenize a window: the half of :func:`embed_window` that needs no device."""
    return tokenize_texts(
        parts.tokenizer,
        window,
        first_row,
        prompt=options.prompt,
        num_prompt_tokens=options.num_prompt_tokens,
        max_length=parts.max_seq_length,
        num_threads=parts.engine.num_threads,
        notice=TruncationNotice.of(parts, options.on_truncation),
    )


def encode_window(
    parts: EmbedderParts, tokenized: TokenizedWindow, options: EncodeOptions
) -> EmbeddedWindow:
    """Encode and pool a tokenized window: the other half of :func:`embed_window`."""
    start = time.perf_counter()
    encoding, first_row = tokenized.encoding, tokenized.first_row
    numbers = first_row + np.arange(len(encoding.cu_seqlens) - 1)
    vectors, num_padded_tokens = embed_rows(parts, TokenRows.of(encoding), numbers, options)
    return EmbeddedWindow(
        vectors=quantize_vectors(vectors, options.precision),
        first_row=first_row,
        truncated=np.asarray(encoding.truncated),
        num_tokens=len(encoding.ids),
        num_padded_tokens=num_padded_tokens,
        tokenize_seconds=tokenized.seconds,
        encode_seconds=time.perf_counter() - start,
    )


def tokenize_texts(
    tokenizer: Tokenizer,
    window: list[str],
    first_row: int,
    *,
    prompt: str,
    num_prompt_tokens: int,
    max_length: int | None,
    num_threads: int,
    notice: TruncationNotice,
) -> TokenizedWindow:
    """Tokenize a window of a stream, each text after the prompt, and count its truncated texts.

    Raises :class:`TextError` for a value that is not a text, and :class:`InputError` for a text
    with no token but the ``num_prompt_tokens`` that are not pooled. Both name the row in the
    stream.
    """
    start = time.perf_counter()
    texts = [prompt + text for text in window] if prompt else window
    try:
        encoding = tokenizer.encode_batch(texts, max_length=max_length, num_threads=num_threads)
    except TextError as error:
        raise located_error(error, window, first_row) from None
    _refuse_nothing_to_pool(encoding, first_row, num_prompt_tokens)
    notice.observe(np.asarray(encoding.truncated), first_row)
    seconds = time.perf_counter() - start
    return TokenizedWindow(encoding=encoding, first_row=first_row, seconds=seconds)


def _refuse_nothing_to_pool(encoding: Encoding, first_row: int, num_prompt_tokens: int) -> None:
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
            f"text {row} merges into the {num_prompt_tokens} tokens of its prompt: no token is "
            "left to pool; end the prompt with a space or a colon",
            row=row,
        )
    raise InputError(
        f"text {row} has no token at all, so it has no vector; "
        "this tokenizer adds no special tokens: leave empty texts out",
        row=row,
    )


def located_error(error: TextError, window: list[Any], first_row: int) -> TextError:
    """Return the error with the text's row in the stream instead of its row in the window."""
    if error.row is None:
        return error
    row, text = first_row + error.row, window[error.row]
    place = find_surrogate(text) if isinstance(text, str) else None
    if place is None:
        return TextError(str(error).replace(f"row {error.row} ", f"row {row} ", 1), row=row)
    described = describe_surrogate(text, place)
    return TextError(f"text {row} has {described}", row=row)


def embed_rows(
    parts: EmbedderParts, rows: TokenRows, numbers: RowArray, options: EncodeOptions
) -> tuple[Vectors, int]:
    """Embed rows of tokens; return [n, D], and the tokens that padded batches would have held.

    ``numbers`` [n]: the row of each text in the stream, for error messages.
    """
    lengths = rows.lengths
    vectors = np.empty((len(rows), options.dimension), dtype=np.float32)
    num_padded_tokens = 0
    compute = partial(
        parts.engine.pooled,
        modes=parts.recipe.pooling,
        num_prompt_tokens=options.num_prompt_tokens,
        normalized=options.normalized,
        dimension=options.dimension,
        layers=parts.recipe.layers,
    )
    for batch, found in compute_batches(
        *(parts.engine, rows, compute),
        batch_tokens=options.batch_tokens,
        batch_size=options.batch_size,
        limit=parts.memory_limit,
        numbers=numbers,
    ):
        num_padded_tokens += int(lengths[batch].max()) * len(batch)
        vectors[batch] = found
    is_finite = np.isfinite(vectors)
    if not is_finite.all():
        broken = np.unique(numbers[~is_finite.all(axis=1)])
        hint = "" if parts.engine.dtype == "float32" else "; load it with dtype='float32'"
        raise NonFiniteVectorError(
            f"the vectors of {len(broken)} texts are NaN or infinite (rows "
            f"{first_rows(broken)}): the model's numbers overflow or are damaged{hint}",
            rows=broken.tolist(),
        )
    return vectors, num_padded_tokens
