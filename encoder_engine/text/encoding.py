"""The result of encoding a batch: packed arrays, and padded and packed views of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import BatchError, InputError
from encoder_engine.text.arguments import check_integer
from encoder_engine.text.extension import extension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine._native import IntTable
    from encoder_engine.packing import PackedBatch
    from encoder_engine.text.arrays import BoolArray, IntArray, LongArray
    from encoder_engine.text.spec.tokenizer import Side, TemplatePiece

__all__ = ["Encoding"]


class Encoding:
    """A batch of token rows, packed: row ``i`` is ``ids[cu_seqlens[i]:cu_seqlens[i + 1]]``.

    There is one row for each text, and more with overflow rows.

    Attributes:
        ids: token ids, int32 ``[T]``.
        cu_seqlens: the index of each row's first token, and the total, int32 ``[B + 1]``.
    """

    def __init__(
        self,
        *,
        ids: IntArray,
        cu_seqlens: IntArray,
        truncated: BoolArray,
        template: Sequence[TemplatePiece],
        first_lengths: IntArray | None,
        offsets: IntArray | None,
        word_ids: IntArray | None,
        overflow_to_sample: IntArray | None,
        pad_id: int | None,
        pad_type_id: int,
        vocab_size: int,
        ints: IntTable,
    ) -> None:
        self.ids = ids
        self.cu_seqlens = cu_seqlens
        self._text_truncated = truncated
        self._samples = overflow_to_sample
        self._template = template
        self._first_lengths = first_lengths
        self._offsets = offsets
        self._word_ids = word_ids
        self._pad_id = pad_id
        self._pad_type_id = pad_type_id
        self._vocab_size = vocab_size
        self._ints = ints

    def __len__(self) -> int:
        """Return the number of rows, overflow rows included."""
        return len(self.cu_seqlens) - 1

    def __repr__(self) -> str:
        return f"Encoding(rows={len(self)}, tokens={len(self.ids)}, cut={self.num_truncated})"

    @cached_property
    def overflow_to_sample(self) -> IntArray:
        """The index of the text that each row belongs to, int32 ``[B]``."""
        if self._samples is None:
            return np.arange(len(self), dtype=np.int32)
        return self._samples

    @property
    def truncated(self) -> BoolArray:
        """True for each row whose text lost tokens that no row has, bool ``[B]``."""
        if self._samples is None:
            return self._text_truncated
        return self._text_truncated[self._samples]

    @cached_property
    def num_truncated(self) -> int:
        """The number of truncated texts."""
        return int(np.count_nonzero(self._text_truncated))

    @property
    def lengths(self) -> IntArray:
        """The number of tokens of each row, int32 ``[B]``."""
        return self.cu_seqlens[1:] - self.cu_seqlens[:-1]

    @property
    def offsets(self) -> IntArray:
        """The characters ``[start, stop)`` of each token in the original text, int32 ``[T, 2]``.

        Template tokens have ``(0, 0)``. Needs ``return_offsets=True``.
        """
        if self._offsets is None:
            raise InputError("offsets were not kept; encode with return_offsets=True")
        return self._offsets

    @property
    def word_ids(self) -> IntArray:
        """Index of each token's word in its text, -1 for template tokens, int32 ``[T]``.

        Needs ``return_offsets=True``.
        """
        if self._word_ids is None:
            raise InputError("word ids were not kept; encode with return_offsets=True")
        return self._word_ids

    @cached_property
    def type_ids(self) -> IntArray:
        """The token type id of each token, as the template sets it, int32 ``[T]``."""
        return self._spread([piece.type_id for piece in self._template])

    @property
    def has_types(self) -> bool:
        """True if the template has token type ids other than 0."""
        return any(piece.type_id for piece in self._template)

    @cached_property
    def special_tokens_mask(self) -> BoolArray:
        """True for the tokens of the template, bool ``[T]``.

        A special token that was written in the text itself is not masked.
        """
        special = [piece.kind == "special" for piece in self._template]
        return self._spread([int(flag) for flag in special]).astype(np.bool_)

    @cached_property
    def sequence_ids(self) -> IntArray:
        """The text that each token belongs to: 0 or 1, -1 for template tokens, int32 ``[T]``."""
        number = {"special": -1, "first": 0, "second": 1}
        return self._spread([number[piece.kind] for piece in self._template])

    def _spread(self, values: list[int]) -> IntArray:
        """Return a value for each token, ``[T]``, given one for each element of the template."""
        num_rows = len(self)
        lengths = self.lengths
        fixed = sum(len(piece.ids) for piece in self._template)
        # A template may use a text more than once.
        kinds = [piece.kind for piece in self._template]
        firsts, seconds = (max(kinds.count(kind), 1) for kind in ("first", "second"))
        texts, first = lengths - fixed, self._first_lengths
        first = texts // firsts if first is None else first
        sizes = {"first": first, "second": (texts - firsts * first) // seconds}
        counts = np.empty((num_rows, len(values)), dtype=np.int32)
        for column, piece in enumerate(self._template):
            counts[:, column] = sizes.get(piece.kind, len(piece.ids))
        tiled = np.broadcast_to(np.asarray(values, dtype=np.int32), counts.shape)
        return np.repeat(tiled.ravel(), counts.ravel())

    def tolist(self) -> list[list[int]]:
        """Return each row's ids as a list of Python ints."""
        return self.to_lists(self.ids)

    def to_lists(
        self, values: IntArray, width: int = 0, fill: int = 0, side: Side = "right"
    ) -> list[list[int]]:
        """Return ``values``, int32 ``[T]``, as a list per row, padded to ``width`` by ``fill``."""
        return self._ints.rows(values, self.cu_seqlens, width, fill, side == "left")

    def to_span_lists(self) -> list[list[tuple[int, int]]]:
        """Return per row a list of its tokens' character offsets ``(start, stop)``."""
        return self._ints.pairs(self.offsets, self.cu_seqlens)

    def to_matrix(self, values: IntArray, width: int, fill: int, side: Side) -> LongArray:
        """Return ``values``, int32 ``[T]``, as rows padded by ``fill``, int64 ``[B, width]``."""
        matrix: LongArray
        left = side == "left"
        matrix, _ = extension().pad_rows(
            values, self.cu_seqlens, width, fill, left, with_mask=False
        )
        return matrix

    def to_id_matrix(self, width: int, pad_id: int, side: Side) -> tuple[LongArray, LongArray]:
        """Return the padded ids and the attention mask, int64 ``[B, width]`` each."""
        matrices: tuple[LongArray, LongArray]
        left = side == "left"
        matrices = extension().pad_rows(
            self.ids, self.cu_seqlens, width, pad_id, left, with_mask=True
        )
        return matrices

    def to_type_matrix(self, width: int, pad_type_id: int, side: Side) -> LongArray:
        """Return the padded token type ids, int64 ``[B, width]``."""
        if pad_type_id == 0 and not self.has_types:
            return np.zeros((len(self), width), dtype=np.int64)
        return self.to_matrix(self.type_ids, width, pad_type_id, side)

    def to_padded(
        self, length: int | None = None, side: Side = "right", multiple_of: int | None = None
    ) -> dict[str, LongArray]:
        """Return the rows padded to a rectangle.

        Args:
            length: columns; the longest row by default.
            side: pad on the ``"right"`` or the ``"left"``.
            multiple_of: round the columns up to a multiple of this.

        Returns:
            ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64 ``[B, L]`` each.

        Raises:
            BatchError: a row is longer than ``length``, or the tokenizer has no padding token.
            InputError: an argument is not one of those named.

        """
        if side not in ("left", "right"):
            raise InputError(f"side is {side!r}, expected 'left' or 'right'")
        width = self._width(length, multiple_of)
        if self._pad_id is None:
            raise BatchError("the tokenizer has no padding token, so rows cannot be padded")
        input_ids, mask = self.to_id_matrix(width, self._pad_id, side)
        type_ids = self.to_type_matrix(width, self._pad_type_id, side)
        return {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": type_ids}

    def _width(self, length: int | None, multiple_of: int | None) -> int:
        longest = int(self.lengths.max(initial=0))
        if length is not None:
            length = check_integer(length, "length", least=0)
        if length is not None and longest > length:
            row = int(self.lengths.argmax())
            raise BatchError(
                f"row {row} has {longest} tokens, more than length={length}; "
                "encode with max_length or pad to a greater length",
                row=row,
            )
        width = longest if length is None else length
        if multiple_of is None:
            return width
        multiple_of = check_integer(multiple_of, "multiple_of", least=1)
        return -(-width // multiple_of) * multiple_of

    def to_packed(self, device: Any = "cpu") -> PackedBatch:
        """Return the rows as a :class:`PackedBatch` on a device; needs PyTorch."""
        from encoder_engine.packing import PackedBatch

        return PackedBatch.from_numpy(
            input_ids=self.ids,
            cu_seqlens=self.cu_seqlens,
            token_type_ids=self.type_ids,
            vocab_size=self._vocab_size,
            device=device,
        )
