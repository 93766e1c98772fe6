"""Tokenizes texts, long ones in overlapping windows, and makes items of the rows of tokens.

An item is a unit of batching: see :class:`encoder_engine.tasks.items.Items`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.packing.token_rows import TokenRows
from encoder_engine.tasks.items import Items

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.tasks.task import Windows
    from encoder_engine.text import Encoding, Tokenizer

__all__ = ["encode_windows", "refuse_no_token", "window_items"]


def encode_windows(
    tokenizer: Tokenizer,
    windows: Windows,
    texts: Sequence[Any],
    pairs: Sequence[str] | None = None,
    *,
    truncation: str = "longest_first",
    **options: Any,
) -> Encoding:
    """Tokenize texts or text pairs, cut into overlapping windows or truncated to ``max_length``.

    ``pairs``: the second text of each pair; None: single texts.
    ``options``: keywords of :meth:`Tokenizer.encode_batch`.
    """
    return tokenizer.encode_batch(
        texts,
        pairs,
        max_length=windows.max_length,
        truncation=truncation,
        stride=0 if windows.truncate else windows.overlap,
        return_overflow=not windows.truncate,
        **options,
    )


def refuse_no_token(encoding: Encoding, samples: npt.NDArray[np.integer[Any]]) -> None:
    """Raise :class:`InputError` if a row of an encoding has no token for the model's head to read.

    samples: the index of the example that each row of the encoding belongs to.
    """
    empty = np.flatnonzero(encoding.lengths == 0)
    if len(empty):
        row = int(samples[empty[0]])
        raise InputError(
            f"row {row} has no token at all, so there is nothing to compute; this tokenizer adds "
            "no special tokens: leave empty rows out",
            row=row,
        )


def window_items(encoding: Encoding, **columns: npt.NDArray[Any]) -> Items:
    """Make :class:`Items` of an encoding: each of its rows, a text or a window of one, is an item.

    ``columns``: arrays [examples, ...]; each window gets the value of its example.
    """
    examples = encoding.overflow_to_sample.astype(np.int64)
    return Items(
        rows=TokenRows.of(encoding),
        offsets=np.arange(len(encoding) + 1),
        examples=examples,
        columns={name: values[examples] for name, values in columns.items()},
        num_truncated=encoding.num_truncated,
    )
