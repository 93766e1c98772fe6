"""Pads rows of tokens that were encoded before, for collators of batches."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.text.calls.columns import as_tensor, padded_width, ragged_error
from encoder_engine.text.extension import extension

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.text.arrays import IntArray, LongArray
    from encoder_engine.text.calls.options import CallOptions

__all__ = ["pad_features"]


def pad_features(features: Any, options: CallOptions) -> dict[str, Any]:
    """Pad the ids, token types and masks of encoded rows; other fields stay as they are.

    ``features``: a list with one mapping per row; or one mapping of lists, for a batch or one row.
    If ``options.columns`` has ``attention_mask``, a missing mask is made. Without
    ``options.tensors`` the result has the type of the input rows: lists or arrays.
    Raises :class:`InputError` for anything else, and for rows that are too long or no tensor holds.
    """
    fields = _by_name(features)
    ids = fields.get("input_ids")
    if ids is None:
        raise InputError(f"there are no input_ids to pad, but {sorted(fields)}; pass encoded rows")
    masked = "attention_mask" in options.columns
    if not len(ids):
        return fields | ({"attention_mask": []} if masked else {})
    is_single = not hasattr(ids[0], "__len__")
    if is_single:
        fields = {name: [values] for name, values in fields.items()}
    rows = fields["input_ids"]
    # Rows of arrays or tensors give arrays or tensors, and their other fields are read as numbers.
    kind = {"numpy": "np", "torch": "pt"}.get(type(rows[0]).__module__.partition(".")[0])
    tensors = options.tensors or kind
    if kind:
        fields |= {name: _as_lists(fields[name]) for name in fields.keys() - options.fills.keys()}
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    pads, longest = options.padding != "do_not_pad", int(lengths.max())
    width = padded_width(longest, options)
    if pads and longest > width:
        raise InputError(
            f"row {int(lengths.argmax())} has {longest} tokens, more than max_length={width}; "
            "encode with truncation, or pad to a greater length",
            row=int(lengths.argmax()),
        )
    if tensors and not pads and int(lengths.min()) < longest:
        raise ragged_error(lengths)
    if masked:
        fields.setdefault("attention_mask", [[1] * length for length in lengths.tolist()])
    for name, values in fields.items():
        try:
            fields[name] = _lay_out(name, values, lengths, width, options, tensors)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{name} cannot be padded: {error}; mend it or leave it out"
            ) from error
    return {name: values[0] for name, values in fields.items()} if is_single else fields


def _by_name(features: Any) -> dict[str, Any]:
    if isinstance(features, Mapping):
        return dict(features.items())
    if isinstance(features, list | tuple) and features and isinstance(features[0], Mapping):
        names = list(features[0].keys())
        for row, found in enumerate(features):
            lacking = [name for name in names if name not in found]
            if lacking:
                raise InputError(f"row {row} has no {lacking[0]}, but row 0 has", row=row)
        return {name: [found[name] for found in features] for name in names}
    raise InputError(
        f"there is {type(features).__name__} to pad, expected a list of mappings, or one mapping"
    )


def _as_lists(values: Any) -> Any:
    if hasattr(values, "tolist"):
        return values.tolist()
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def _lay_out(
    name: str, rows: Any, lengths: IntArray, width: int, options: CallOptions, tensors: str | None
) -> Any:
    """Return one field of all rows, padded to ``width``, as lists, an array or a tensor."""
    if len(rows) != len(lengths):
        raise ValueError(f"it has {len(rows)} rows, but input_ids has {len(lengths)}")
    found = rows
    if width and name in options.fills:
        found = _pad(rows, lengths, width, options.fills[name], left=options.padding_side == "left")
    if tensors is None:
        return found.tolist() if isinstance(found, np.ndarray) else found
    if tensors == "pt":
        return as_tensor(found)
    array_of_all = np.asarray(found)
    if array_of_all.dtype == object:
        raise ValueError("its rows differ in length")
    return array_of_all


def _pad(rows: Sequence[Any], lengths: IntArray, width: int, fill: int, *, left: bool) -> LongArray:
    """Pad rows of integers with the number ``fill``; return int64 ``[B, width]``."""
    values: npt.NDArray[Any]
    if isinstance(rows[0], list | tuple):
        # Half the time of np.array; it takes nothing but integers of 32 bits.
        values = np.frombuffer(array("i", chain.from_iterable(rows)), np.int32)
    else:
        values = np.concatenate([np.asarray(row) for row in rows])
    narrow = values.astype(np.int32)
    if values.ndim != 1 or values.dtype.kind not in "iu" or (narrow != values).any():
        raise ValueError(f"expected rows of 32-bit integers, it has {values.dtype}")
    if [*map(len, rows)] != lengths.tolist():
        raise ValueError("its rows are not as long as those of input_ids")
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    matrix: LongArray
    matrix, _ = extension().pad_rows(narrow, starts, width, fill, left, with_mask=False)
    return matrix
