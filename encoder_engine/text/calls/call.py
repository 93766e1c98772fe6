"""A tokenizer call: collects its texts into a batch, encodes it, and lays out the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import InputError, TextError
from encoder_engine.text.arguments import sequence_of_texts
from encoder_engine.text.calls.columns import Columns
from encoder_engine.text.calls.row_encodings import RowEncodings

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.text.calls.options import CallOptions
    from encoder_engine.text.encoding import Encoding

__all__ = ["call"]


def call(
    encode_batch: Callable[..., Encoding],
    text: Any,
    text_pair: Any,
    options: CallOptions,
    *,
    make: Callable[..., Any],
    tokens_of: Callable[[int, list[int]], list[str]],
) -> Any:
    """Encode a text, a batch of texts, a pair of texts or a batch of pairs; return the result.

    ``make``: the class of the result, which takes fields, rows and ``n_sequences``.
    ``tokens_of``: a function from a row's index and its ids to its tokens.
    Raises what :meth:`Tokenizer.encode_batch` raises.
    """
    texts, pairs, is_batch = split_texts(text, text_pair, words=options.words)
    truncates = options.truncates
    encode = partial(
        encode_batch,
        texts,
        pairs,
        options.add_special_tokens,
        options.max_length if truncates else None,
        options.truncation,
        options.stride if truncates and options.overflow else 0,
        num_threads=options.num_threads,
        return_overflow=options.overflow,
        truncation_side=options.truncation_side,
        is_split_into_words=options.words,
    )
    encoding = encode(return_offsets="offset_mapping" in options.columns)
    fields = Columns(encoding, options).as_fields()
    if not (is_batch or options.tensors or options.overflow):
        fields = {name: value[0] if name != "length" else value for name, value in fields.items()}
    n_sequences = 1 if pairs is None else 2
    rows = RowEncodings(len(encoding), n_sequences, encode, options, tokens_of)
    return make(fields, rows, n_sequences=n_sequences)


def split_texts(text: Any, pair: Any, *, words: bool) -> tuple[Any, Any, bool]:
    """Return first texts, second texts or ``None``, and whether the call has a batch or one text.

    Raises :class:`InputError` where some rows of a batch are pairs and others are not, and
    :class:`TextError` for a single second text beside a batch.
    """
    if words:
        is_batch = _is_row(text) and bool(text) and _is_row(text[0])
    else:
        is_batch = not isinstance(text, str)
    if not is_batch:
        # An empty second text counts as no second text, as in transformers.
        return [text], [pair] if pair else None, False
    if isinstance(pair, str):
        raise TextError("text_pair is one str, but text is a batch; give as many second texts")
    # Copies: rows may be read after the caller has changed the lists.
    text = tuple(sequence_of_texts(text, "text"))
    if pair is not None or not text:
        return text, None if pair is None else tuple(sequence_of_texts(pair, "text_pair")), True
    first = text[0]
    if not (_is_row(first) and (not words or (bool(first) and _is_row(first[0])))):
        return text, None, True
    for row, item in enumerate(text):
        if not _is_row(item) or len(item) != 2:
            raise InputError(
                f"text at row {row} is {type(item).__name__}, but the text at row 0 is a pair; "
                "give pairs of two texts in all rows, or second texts by text_pair",
                row=row,
            )
    firsts, seconds = zip(*text, strict=True)
    return firsts, seconds, True


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
