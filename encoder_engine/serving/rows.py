"""Joins tokenized texts of several requests into one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError, SequenceLengthError
from encoder_engine.packing.token_rows import EncodedRows, InputRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.packing.token_rows import IdArray, WindowRows

__all__ = ["join_rows", "rows_of_ids"]


def rows_of_ids(rows: Sequence[IdArray], *, vocab_size: int, max_length: int | None) -> EncodedRows:
    """Make tokenized rows of given token ids, int32 [n] for each text, without changing them.

    Raises :class:`InputError` for a text without ids and for an id outside the vocabulary, and
    :class:`SequenceLengthError` for more ids than the model takes: cutting would drop the last
    special token.
    """
    # Without row=: HTTP answers state the message of such an error, which quotes no text.
    for number, ids in enumerate(rows):
        if not len(ids):
            raise InputError(f"text {number} has no token ids; send at least one")
        if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
            raise InputError(
                f"text {number} has a token id outside 0..{vocab_size - 1}; send ids of the "
                "model's own tokenizer"
            )
        if max_length is not None and len(ids) > max_length:
            raise SequenceLengthError(
                f"text {number} has {len(ids)} token ids; the limit is {max_length}", row=number
            )
    ends = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(ids) for ids in rows], out=ends[1:])
    joined = np.concatenate(rows)
    return EncodedRows(ids=joined, cu_seqlens=ends, truncated=np.zeros(len(rows), dtype=np.bool_))


def join_rows(parts: Sequence[tuple[WindowRows, int, int]]) -> WindowRows:
    """Concatenate the tokenized texts ``rows[start:stop]`` of each part, for one batch.

    A single part with all its rows is returned without a copy. Neighbouring parts of the same rows,
    as of texts that were tokenized together, are joined first.
    """
    merged: list[tuple[WindowRows, int, int]] = []
    for rows, start, stop in parts:
        if merged and merged[-1][0] is rows and merged[-1][2] == start:
            merged[-1] = (rows, merged[-1][1], stop)
        else:
            merged.append((rows, start, stop))
    first, start, stop = merged[0]
    if len(merged) == 1 and (start, stop) == (0, len(first)):
        return first
    spans = [
        (rows, slice(start, stop), slice(int(rows.cu_seqlens[start]), int(rows.cu_seqlens[stop])))
        for rows, start, stop in merged
    ]
    lengths = np.concatenate([rows.lengths[texts] for rows, texts, _ in spans])
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    ids = np.concatenate([rows.ids[tokens] for rows, _, tokens in spans])
    types = None
    if any(rows.has_types for rows, _, _ in merged):
        types = np.concatenate([rows.type_ids[tokens] for rows, _, tokens in spans])
    truncated = np.concatenate([np.asarray(rows.truncated)[texts] for rows, texts, _ in spans])
    joined: dict[str, Any] = {
        "ids": ids,
        "cu_seqlens": ends,
        "types": types,
        "truncated": truncated,
    }
    if isinstance(first, InputRows):
        named: list[tuple[Any, slice, slice]] = list(spans)
        inputs = [one for rows, texts, _ in named for one in rows.inputs[texts]]
        return InputRows(**joined, inputs=inputs)
    return EncodedRows(**joined)
