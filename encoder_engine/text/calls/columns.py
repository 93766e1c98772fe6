"""Makes the fields of a tokenizer call's result from an encoding: lists or padded arrays."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import InputError

if TYPE_CHECKING:
    from encoder_engine.text.arrays import IntArray
    from encoder_engine.text.calls.options import CallOptions
    from encoder_engine.text.encoding import Encoding

__all__ = ["Columns", "as_tensor", "padded_width", "ragged_error"]

ATTRIBUTES = {"token_type_ids": "type_ids"}


class Columns:
    """The fields of a tokenizer call's result, made of an encoding and padded as the options say.

    Arrays are views of the extension's buffers, and lists are made in C++: no Python loop runs over
    tokens.
    """

    def __init__(self, encoding: Encoding, options: CallOptions) -> None:
        self._encoding, self._options = encoding, options
        # The number of columns that padding asks for, and that of the result.
        self._asked = self.width = 0
        self._is_ragged = False
        if options.padding != "do_not_pad" or options.tensors is not None:
            lengths = encoding.lengths
            longest = int(lengths.max(initial=0))
            self._asked = padded_width(longest, options)
            # A row that nothing cuts may be longer than its padding.
            self.width = max(self._asked, longest)
            self._is_ragged = longest > self._asked and bool((lengths < longest).any())

    @cached_property
    def id_lists(self) -> list[list[int]]:
        """The ids of each row, padding included."""
        options = self._options
        return self._encoding.to_lists(
            self._encoding.ids, self._asked, options.pad_id, options.padding_side
        )

    @property
    def sizes(self) -> list[int]:
        """The number of tokens of each row, padding included."""
        return [*map(len, self.id_lists)]

    def as_fields(self) -> dict[str, Any]:
        """Return the fields by name: lists, arrays or tensors, as the call's options say."""
        options = self._options
        if options.tensors is None:
            fields: dict[str, Any] = {name: self.lists(name) for name in options.columns}
        elif self._is_ragged:
            fields = {name: self._ragged(name) for name in options.columns}
        else:
            fields = self._arrays()
        if options.overflow:
            samples = self._encoding.overflow_to_sample
            fields["overflow_to_sample_mapping"] = (
                samples.tolist() if options.tensors is None else samples.astype(np.int64)
            )
        if options.tensors == "pt":
            return {name: as_tensor(values) for name, values in fields.items()}
        return fields

    def lists(self, name: str) -> list[Any]:
        """Return a field, such as ``attention_mask``, as one list per row."""
        encoding, options = self._encoding, self._options
        if name == "input_ids":
            return self.id_lists
        if name == "length":
            return self.sizes
        if name == "token_type_ids" and not (options.pad_type_id or encoding.has_types):
            return [[0] * size for size in self.sizes]
        if name == "attention_mask" and not self._asked:
            return [[1] * size for size in self.sizes]
        if name == "offset_mapping":
            rows = encoding.to_span_lists()
            for row in rows if self._asked else ():
                place = 0 if options.padding_side == "left" else len(row)
                row[place:place] = [(0, 0)] * (self._asked - len(row))
            return rows
        # Word and text numbers of padding are those of template tokens.
        fill = options.fills.get(name, -1) if self._asked else 0
        return encoding.to_lists(self._values(name), self._asked, fill, options.padding_side)

    def _values(self, name: str) -> IntArray:
        encoding = self._encoding
        if name == "attention_mask":
            return np.ones_like(encoding.ids)
        if name == "special_tokens_mask":
            return encoding.special_tokens_mask.astype(np.int32)
        values: IntArray = getattr(encoding, ATTRIBUTES.get(name, name))
        return values

    def _arrays(self) -> dict[str, Any]:
        encoding, options, width = self._encoding, self._options, self.width
        side = options.padding_side
        ids, mask = encoding.to_id_matrix(width, options.pad_id, side)
        fields: dict[str, Any] = {}
        for name in options.columns:
            if name == "input_ids":
                fields[name] = ids
            elif name == "attention_mask":
                fields[name] = mask
            elif name == "token_type_ids":
                fields[name] = encoding.to_type_matrix(width, options.pad_type_id, side)
            elif name == "length":
                fields[name] = np.full(len(encoding), width, np.int64)
            elif name == "offset_mapping":
                ends = [np.ascontiguousarray(end) for end in encoding.offsets.T]
                spans = np.stack([encoding.to_matrix(end, width, 0, side) for end in ends], axis=-1)
                # An array of empty lists has two dimensions.
                fields[name] = spans if width else spans[..., 0]
            else:
                fields[name] = encoding.to_matrix(self._values(name), width, 1, side)
        return fields

    def _ragged(self, name: str) -> Any:
        """Return a field as an object array with one array per row, as transformers does."""
        rows = self.lists(name)
        if name == "length":
            return np.asarray(rows, np.int64)
        if self._options.tensors == "pt":
            raise ragged_error(self._encoding.lengths)
        out = np.empty(len(rows), object)
        for place, row in enumerate(rows):
            out[place] = np.asarray(row)
        return out


def padded_width(longest: int, options: CallOptions) -> int:
    """Return the number of tokens to pad rows to, given the longest row's; 0 without padding."""
    if options.padding == "do_not_pad":
        return 0
    width = longest if options.padding == "longest" else options.max_length or 0
    multiple = options.multiple_of or 1
    return -(-width // multiple) * multiple


def ragged_error(lengths: IntArray) -> InputError:
    """Return the error for rows of different lengths, which cannot be one tensor."""
    return InputError(
        f"the rows have from {lengths.min()} to {lengths.max()} tokens, which no tensor holds; "
        "pass padding=True, or truncation=True with a max_length, or return_tensors=None"
    )


def as_tensor(values: Any) -> Any:
    """Return an array, whose memory is shared, or lists of numbers as a PyTorch tensor."""
    from encoder_engine.packing.tensors import as_tensor as convert

    return convert(values)
