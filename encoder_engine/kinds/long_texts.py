"""Dense vectors of texts of any length: overlapping chunks, whose vectors are pooled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.kinds.dense import Dense
from encoder_engine.kinds.kind import Batches
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.vectors.precision import quantize_vectors

if TYPE_CHECKING:
    from encoder_engine.kinds.options import Options
    from encoder_engine.kinds.windows import TokenizedWindow
    from encoder_engine.opening.recipe import PoolingRecipe

__all__ = ["ChunkPooling", "LongTexts", "chunk_rows"]

ChunkPooling = Literal["mean", "weighted", "max"]
IntArray = np.ndarray[Any, np.dtype[np.integer[Any]]]
Array = np.ndarray[Any, np.dtype[Any]]


class LongTexts(Dense):
    """The :class:`Kind` of vectors [n, D] of texts that are cut into chunks instead of truncated.

    See :meth:`Embedder.encode_long`.
    """

    def __init__(
        self, model: Any, recipe: PoolingRecipe, *, overlap: int | None, chunk_pooling: ChunkPooling
    ) -> None:
        super().__init__(model, recipe)
        if chunk_pooling not in get_args(ChunkPooling):
            raise InputError(
                f"chunk_pooling must be one of {', '.join(get_args(ChunkPooling))}, got "
                f"{chunk_pooling!r}"
            )
        self._overlap, self._pooling = overlap, chunk_pooling

    def resolve(self, **keywords: Any) -> Options:
        """Validate the keywords of a call, and the number of tokens that chunks share."""
        options, limit = super().resolve(**keywords), self.model.max_seq_length
        special, prompt = self._added_tokens(options)
        _check_overlap(self._overlap, None if limit is None else limit - special - prompt)
        return options

    def limit(self, options: Options) -> None:
        """Return None: texts are not truncated."""
        del options

    def finish(self, window: TokenizedWindow, batches: Batches, options: Options) -> Array:
        """Cut consecutive texts into chunks, and compute the texts' vectors from the chunks'."""
        encoding: Any = window.encoding
        special, prompt = self._added_tokens(options)
        rows, owners = chunk_rows(
            batches.rows,
            np.asarray(encoding.special_tokens_mask),
            limit=self.model.max_seq_length,
            overlap=self._overlap,
            prompt=prompt,
        )
        numbers = (window.first_row + owners).astype(np.intp)
        vectors = self.vectors(Batches(self, rows, numbers, options), options)
        own, num_texts = rows.lengths - special - prompt, len(batches.rows)
        pooled = _pool(vectors, owners, own, num_texts, self._pooling)
        if options.normalized:
            several = np.bincount(owners, minlength=num_texts) > 1
            lengths = np.linalg.norm(pooled[several], axis=1, keepdims=True)
            pooled[several] /= np.maximum(lengths, 1e-12)
        return quantize_vectors(pooled, options.precision)

    def _added_tokens(self, options: Options) -> tuple[int, int]:
        """Return the number of special tokens around a text, and of the prompt's own tokens."""
        tokenizer = self.tokenizer
        special = len(tokenizer.encode(""))
        return special, len(tokenizer.encode(options.prompt)) - special if options.prompt else 0


def chunk_rows(
    rows: TokenRows,
    special: np.ndarray[Any, np.dtype[np.bool_]],
    *,
    limit: int | None,
    overlap: int | None,
    prompt: int,
) -> tuple[TokenRows, IntArray]:
    """Cut token rows longer than ``limit`` into chunks; return the chunks and each chunk's row.

    Every chunk has the special tokens and the leading ``prompt`` tokens of its row. ``special``:
    whether each token is a special one, bool [T]. ``limit`` None: no row is cut. ``overlap``: the
    tokens that neighbouring chunks share; None: an eighth of a chunk. Raises :class:`InputError` if
    special tokens and prompt leave no room for a text.
    """
    ids, types, lengths, owners = [], [], [], []
    for row, (start, stop) in enumerate(
        zip(rows.cu_seqlens[:-1].tolist(), rows.cu_seqlens[1:].tolist(), strict=True)
    ):
        places = np.arange(start, stop)
        if limit is None or stop - start <= limit:
            chunks = [places]
        else:
            own = np.flatnonzero(~special[start:stop])
            head = places[: own[0] + prompt]
            tail, body = places[own[-1] + 1 :], places[own[0] + prompt : own[-1] + 1]
            chunks = _chunks(head, body, tail, limit, overlap)
        for chunk in chunks:
            ids.append(rows.ids[chunk])
            if rows.type_ids is not None:
                types.append(rows.type_ids[chunk])
            lengths.append(len(chunk))
            owners.append(row)
    cut = TokenRows(
        ids=np.concatenate(ids),
        type_ids=np.concatenate(types) if types else None,
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
    )
    return cut, np.asarray(owners)


def _check_overlap(overlap: object, room: int | None) -> None:
    """Raise :class:`InputError` unless ``overlap`` is None or a whole number from 0 below ``room``.

    ``room``: the tokens of a chunk without special tokens and prompt; None: no limit. Below 1 it is
    not compared: :func:`chunk_rows` then raises an error for the prompt.
    """
    if overlap is None or (room is not None and room < 1):
        return
    whole = isinstance(overlap, int) and not isinstance(overlap, bool)
    if not whole or overlap < 0 or (room is not None and overlap >= room):  # type: ignore[operator]
        most = "" if room is None else f" to {room - 1}, below a chunk's {room} tokens"
        raise InputError(f"overlap must be a whole number from 0{most}, got {overlap!r}")


def _chunks(
    head: IntArray, body: IntArray, tail: IntArray, limit: int, overlap: int | None
) -> list[IntArray]:
    room = limit - len(head) - len(tail)
    if room < 1:
        raise InputError(f"the prompt leaves no room for a text: the limit is {limit} tokens")
    shared = room // 8 if overlap is None else overlap
    # The last chunk begins where it still holds a token that none before it did.
    starts = range(0, max(len(body) - shared, 1), room - shared)
    return [np.concatenate([head, body[start : start + room], tail]) for start in starts]


def _pool(
    vectors: Array, owners: IntArray, lengths: IntArray, count: int, pooling: ChunkPooling
) -> Array:
    """Pool the chunk vectors of each text, [count, D]; the vector of a single chunk is unchanged.

    ``owners``: the text of each chunk. ``lengths``: the chunks' numbers of tokens, which weigh them
    unless ``pooling`` is ``"mean"`` or ``"max"``.
    """
    firsts = np.searchsorted(owners, np.arange(count))
    if pooling == "max":
        return np.asarray(np.maximum.reduceat(vectors, firsts, axis=0))
    weights = np.ones(len(owners)) if pooling == "mean" else np.maximum(lengths, 1).astype(float)
    totals = np.add.reduceat(weights, firsts)
    summed = np.add.reduceat(vectors * (weights / totals[owners])[:, None], firsts, axis=0)
    return np.asarray(summed.astype(np.float32))
