"""Tokenizes sentences of given words into items: the tokens of a window, and its words.

How it works: each word is tokenized alone, without a limit; with the space before it, if a space
changes its tokens. A sentence of up to ``max_length`` tokens is one item.

A longer sentence is cut between words into overlapping windows. Each word belongs to the window of
its maximum context, as in BERT's SQuAD code: the window where the smaller of the numbers of tokens
before and after the word is greatest. A word without a token (a control character alone) belongs to
no window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, MendedRowsWarning
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks.items import Items, Ragged
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.task import Windows
    from encoder_engine.text import Encoding, Tokenizer

    Integers = npt.NDArray[np.int64]
    Booleans = npt.NDArray[np.bool_]

__all__ = [
    "Subwords",
    "WordWindow",
    "decode_words",
    "encode_words",
    "marks_spaces",
    "template_ids",
    "window_contexts",
]

Subwords = Literal["first", "all"]


class WordWindow(NamedTuple):
    """A window of a long sentence: its tokens ``start`` to ``stop - 1``, and its words.

    ``words`` int64 [n]: the indices of words with a token in the window, ascending.
    ``before``, ``after`` int64 [n]: the number of the window's tokens before and after each word.
    """

    start: int
    stop: int
    words: Integers
    before: Integers
    after: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class _Texts:
    """The tokens of all sentences, and the index of each token's word; -1 for special tokens."""

    ids: npt.NDArray[np.int32]
    types: npt.NDArray[np.int32] | None
    offsets: Integers
    words: Integers
    # Template tokens before and after each text.
    before: int
    after: int


def encode_words(
    sentences: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    windows: Windows,
    subwords: Subwords = "first",
    *,
    partition: bool = True,
    spaced: bool = True,
) -> Items:
    """Tokenize sentences of words into items.

    subwords: the tokens of a word that the model reads: the first, or all.
    partition: each word is in one window; False: in every window that holds its tokens.
    spaced: tokenize words with a space between them, as in a text; False: without a space, even
        where it would change a word's tokens.

    The items have three columns: ``places`` (:class:`Ragged`: the tokens that are read, as indices
    into the item), ``words`` (:class:`Ragged`: the index of each token's word), and ``num_words``
    of the sentence. Warns of words without a token. ``num_truncated`` counts sentences that lose
    words, or parts of words, to ``max_length``. Raises :class:`InputError` for a ``max_length``
    that special tokens fill.
    """
    if spaced and marks_spaces(tokenizer):
        sentences = [_with_spaces(words) for words in sentences]
    encoding = tokenizer.encode_batch(
        [list(words) for words in sentences], is_split_into_words=True, return_offsets=True
    )
    texts = _texts(encoding)
    room = windows.max_length - texts.before - texts.after
    if room < 1:
        raise InputError(
            f"max_length is {windows.max_length}, but the template alone takes "
            f"{texts.before + texts.after} tokens; raise it"
        )
    num_words = np.array([len(words) for words in sentences], np.int64)
    firsts = _first_tokens(texts)
    _warn_of_silent(texts, firsts, num_words)
    read = firsts if subwords == "first" else texts.words >= 0
    lengths = np.diff(texts.offsets)
    if int(lengths.max(initial=0)) <= windows.max_length:
        return _whole(texts, read, num_words)
    return _cut(texts, read, num_words, windows, partition=partition)


def marks_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether a space before a word changes the word's tokens.

    True for the byte-level BPE of RoBERTa, ModernBERT and GPT-2, where a space is a part of the
    next word's first token, unless ``add_prefix_space`` adds the space: without spaces, the words
    of a sentence would be read as one long word.
    """
    text = tokenizer.encode("a a", add_special_tokens=False).tolist()
    alone, spaced = (
        tokenizer.encode_batch(
            [["a", word]], add_special_tokens=False, is_split_into_words=True
        ).ids.tolist()
        for word in ("a", " a")
    )
    return bool(text == spaced != alone)


def template_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids of the special tokens before a text, and of those after it."""
    parts: tuple[list[int], list[int]] = ([], [])
    after = 0
    for piece in tokenizer.spec.single:
        after |= piece.kind != "special"
        parts[after].extend(piece.ids)
    return parts


def _with_spaces(words: Sequence[str]) -> list[str]:
    """Put a space before each word but the first; empty words stay empty."""
    first = next((number for number, word in enumerate(words) if word), 0)
    return [f" {word}" if word and number > first else word for number, word in enumerate(words)]


def _texts(encoding: Encoding) -> _Texts:
    special = encoding.special_tokens_mask
    offsets = encoding.cu_seqlens.astype(np.int64)
    # The template is the same for all rows: read off a row with text, or a row of template alone.
    before = after = 0
    if len(encoding):
        lengths = np.diff(offsets)
        row = int(lengths.argmax())
        inside = np.flatnonzero(~special[offsets[row] : offsets[row + 1]])
        if len(inside):
            before, after = int(inside[0]), int(lengths[row] - 1 - inside[-1])
        else:
            before = int(lengths[row])
    return _Texts(
        ids=encoding.ids,
        types=encoding.type_ids if encoding.has_types else None,
        offsets=offsets,
        words=np.where(special, -1, encoding.word_ids).astype(np.int64),
        before=before,
        after=after,
    )


def _first_tokens(texts: _Texts) -> Booleans:
    """Mark the first token of each word, bool [T], of the T tokens of all sentences."""
    words = texts.words
    changed = np.r_[True, words[1:] != words[:-1]] if len(words) else np.zeros(0, np.bool_)
    changed[texts.offsets[:-1][np.diff(texts.offsets) > 0]] = True
    return changed & (words >= 0)


def _warn_of_silent(texts: _Texts, firsts: Booleans, num_words: Integers) -> None:
    owners = np.repeat(np.arange(len(num_words)), np.diff(texts.offsets))
    there = np.bincount(owners[firsts], minlength=len(num_words))
    silent = num_words - there
    if silent.any():
        warn_caller(
            MendedRowsWarning(
                f"{silent.sum()} words of {np.count_nonzero(silent)} sentences have no token, the "
                f"first in sentence {int(silent.argmax())}; the model does not see them",
                num_mended=int(silent.sum()),
            )
        )


def _whole(texts: _Texts, read: Booleans, num_words: Integers) -> Items:
    """Return each sentence as one item; no sentence has more tokens than ``max_length``."""
    owners = np.repeat(np.arange(len(num_words)), np.diff(texts.offsets))
    return _items(
        texts, np.arange(len(texts.ids)), np.arange(len(num_words)), owners, read, num_words, 0
    )


def _cut(
    texts: _Texts, read: Booleans, num_words: Integers, windows: Windows, *, partition: bool
) -> Items:
    """Return each window of a long sentence, and each other sentence, as one item.

    With ``windows.truncate``, a long sentence has its first window only. ``read``: bool [T], the
    tokens that the model's head may read. ``partition``: see :func:`encode_words`.
    """
    room = windows.max_length - texts.before - texts.after
    index: list[Integers] = []
    kept: list[Booleans] = []
    examples: list[int] = []
    sizes: list[int] = []
    num_truncated = 0
    for example, (begin, end) in enumerate(zip(texts.offsets[:-1], texts.offsets[1:], strict=True)):
        first, last = int(begin) + texts.before, int(end) - texts.after
        if end - begin <= windows.max_length:
            index.append(np.arange(begin, end))
            kept.append(read[begin:end])
            examples.append(example)
            sizes.append(int(end - begin))
            continue
        words = texts.words[first:last]
        cut = list(window_contexts(words, room, windows.overlap))
        cut = cut[:1] if windows.truncate else cut
        num_truncated += windows.truncate or any(
            np.count_nonzero(words == window.words[-1]) > room for window in cut
        )
        owners = _owners(cut, int(num_words[example]))
        for number, window in enumerate(cut):
            inside = np.arange(first + window.start, first + window.stop)
            rows = np.r_[begin:first, inside, last:end]
            mine = read[rows]
            if partition:
                of_word = texts.words[rows]
                mine = mine & (of_word >= 0) & (owners[of_word] == number)
            index.append(rows)
            kept.append(mine)
            examples.append(example)
            sizes.append(len(rows))
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return _items(
        texts,
        np.concatenate(index),
        np.array(examples, np.int64),
        owners,
        np.concatenate(kept),
        num_words,
        num_truncated,
    )


def window_contexts(words: Integers, room: int, overlap: int) -> list[WordWindow]:
    """Cut a sentence of tokens into windows of whole words.

    words: the index of each token's word, int64 [n], ascending. A window has up to ``room`` tokens,
    and shares up to ``overlap`` tokens with the next. A word of more tokens is truncated to
    ``room``.
    """
    starts = np.flatnonzero(np.r_[True, words[1:] != words[:-1]])
    stops = np.append(starts[1:], len(words))
    found: list[WordWindow] = []
    first = 0
    while first < len(starts):
        start = int(starts[first])
        # The words that end within the window; at least one.
        last = max(int(np.searchsorted(stops, start + room, side="right")), first + 1)
        stop = min(int(stops[last - 1]), start + room)
        inside = slice(first, last)
        found.append(
            WordWindow(
                start=start,
                stop=stop,
                words=words[starts[inside]],
                before=starts[inside] - start,
                after=np.maximum(stop - stops[inside], 0),
            )
        )
        if last == len(starts):
            break
        back = int(np.searchsorted(starts, int(starts[last]) - overlap, side="left"))
        first = min(max(back, first + 1), last)
    return found


def _owners(windows: list[WordWindow], num_words: int) -> Integers:
    """Return the index of the window that each word belongs to; -1: the word has no token.

    It is the window in which the smaller of the numbers of tokens before and after the word is
    greatest; of equals the first.
    """
    best = np.full(num_words, -1, np.int64)
    owners = np.full(num_words, -1, np.int64)
    for number, window in enumerate(windows):
        contexts = np.minimum(window.before, window.after)
        better = contexts > best[window.words]
        best[window.words[better]] = contexts[better]
        owners[window.words[better]] = number
    return owners


def _items(
    texts: _Texts,
    index: Integers,
    examples: Integers,
    owners: Integers,
    kept: Booleans,
    num_words: Integers,
    num_truncated: int,
) -> Items:
    """Make items of the tokens with the indices ``index`` [t].

    ``owners`` [t]: the item of each token, ascending. ``kept`` [t]: whether the model's head reads
    it.
    """
    ends = np.zeros(len(examples) + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=len(examples)), out=ends[1:])
    rows = np.flatnonzero(kept)
    offsets = np.zeros(len(examples) + 1, np.int64)
    np.cumsum(np.bincount(owners[rows], minlength=len(examples)), out=offsets[1:])
    return Items(
        rows=TokenRows(
            ids=texts.ids[index],
            cu_seqlens=ends.astype(np.int32),
            type_ids=None if texts.types is None else texts.types[index],
        ),
        offsets=np.arange(len(examples) + 1),
        examples=examples,
        columns={
            "places": Ragged(rows - ends[owners[rows]], offsets),
            "words": Ragged(texts.words[index[rows]], offsets),
            "num_words": num_words[examples],
        },
        num_truncated=num_truncated,
    )


def decode_words(
    logits: npt.NDArray[np.floating],
    items: Items,
    num_words: npt.NDArray[np.int64],
    pooling: Literal["first", "mean", "max"],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the logits of all words, float64 [W, K], and whether each has no token, bool [W].

    logits: [M, K] of the tokens in the column ``places`` of ``items``. num_words: the number of
    words of each example, int64 [N]. pooling: how the logits of a word's tokens are joined.
    """
    read = items.ragged("words")
    owners = np.repeat(items.examples, np.diff(read.offsets))
    firsts = np.r_[0, np.cumsum(num_words)]
    word = firsts[owners] + read.values
    total = int(firsts[-1])
    counts = np.bincount(word, minlength=total)
    found = np.zeros((total, logits.shape[1]))
    if pooling == "first":
        # A word's tokens are in order, within one window.
        first = np.unique(word, return_index=True)[1]
        found[word[first]] = logits[first]
    elif pooling == "mean":
        np.add.at(found, word, logits)
        found /= np.maximum(counts, 1)[:, None]
    else:
        found[counts > 0] = -np.inf
        np.maximum.at(found, word, logits)
    return found, counts == 0
