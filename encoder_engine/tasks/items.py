"""Tokenized examples, ready to be batched; and the reference to a saved model.

An example is a row of a file. Its items are the units of batching: the windows of a long text, or
the whole text. An item has one sequence in most tasks; the choices of a question, or the texts of a
pair that are embedded apart, are the sequences of one item.

Dimensions: N items, S sequences, T tokens.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from encoder_engine.packing.token_rows import TokenRows

    Integers = npt.NDArray[np.int64]

# The column, and the target, of the rows that a frozen encoder has computed.
FEATURES = "features"
# Columns and targets of lists: the label of each text, the number of texts of each list.
LABELS, SIZES = "labels", "sizes"

__all__ = [
    "FEATURES",
    "LABELS",
    "SIZES",
    "Items",
    "Ragged",
    "SavedModel",
    "TaskBatch",
    "feature_targets",
    "gather",
]


class Ragged(NamedTuple):
    """An array of different length for each item: item i has ``values[offsets[i]:offsets[i + 1]]``.

    ``values`` [n, ...]; ``offsets`` int64 [N + 1].
    """

    values: npt.NDArray[Any]
    offsets: Integers

    def take(self, numbers: Integers) -> Ragged:
        """Return the values of the items with these indices, in the order of the indices."""
        index, offsets = gather(self.offsets, numbers)
        return Ragged(self.values[index], offsets)

    def of(self, number: int) -> npt.NDArray[Any]:
        """Return the values of the item with this index."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """N items of S sequences, which are tokenized examples, with the columns that a task adds.

    ``rows``: the tokens of all sequences.
    ``offsets``: int64 [N + 1]; item i has the sequences ``offsets[i]`` to ``offsets[i + 1] - 1``.
    ``examples``: int64 [N]; the index of the example that each item belongs to, ascending.
    ``columns``: targets and other arrays of the task, [N, ...] or :class:`Ragged`.
    ``num_truncated``: the number of examples that lost tokens.
    """

    rows: TokenRows
    offsets: Integers
    examples: Integers
    columns: Mapping[str, npt.NDArray[Any] | Ragged] = field(default_factory=dict)
    num_truncated: int = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.examples)

    @property
    def token_offsets(self) -> Integers:
        """The index of each item's first token, then the number of all tokens, int64 [N + 1]."""
        return self.rows.cu_seqlens.astype(np.int64)[self.offsets]

    @property
    def num_tokens(self) -> Integers:
        """The number of tokens of each item, int64 [N]."""
        return np.diff(self.token_offsets)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return the column with this name, which has one value, or one row of values, per item."""
        found = self.columns[name]
        assert not isinstance(found, Ragged)
        return found

    def ragged(self, name: str) -> Ragged:
        """Return the column with this name, which has any number of values per item."""
        found = self.columns[name]
        assert isinstance(found, Ragged)
        return found

    def take(self, numbers: Integers) -> Items:
        """Return the items with the indices ``numbers``, in this order, with their columns."""
        sequences, offsets = gather(self.offsets, numbers)
        return Items(
            rows=self.rows.take(sequences.astype(np.intp)),
            offsets=offsets,
            examples=self.examples[numbers],
            columns={
                name: column.take(numbers) if isinstance(column, Ragged) else column[numbers]
                for name, column in self.columns.items()
            },
        )

    def batches(self, num_tokens: int) -> Iterator[Integers]:
        """Yield the indices of the items of each batch, int64: whole examples, in order.

        A batch has up to ``num_tokens`` tokens. An example of more is a batch of its own, so that
        its windows are decoded together.
        """
        if not len(self):
            return
        starts = np.flatnonzero(np.r_[True, np.diff(self.examples) != 0])
        ends = np.append(starts[1:], len(self))
        total = np.r_[0, np.cumsum(self.num_tokens)]
        first, last = 0, 0
        for start, end in zip(starts, ends, strict=True):
            if start > first and total[end] - total[first] > num_tokens:
                yield np.arange(first, start)
                first = int(start)
            last = int(end)
        yield np.arange(first, last)


class SavedModel(NamedTuple):
    """A model's directory, and its device and dtype: see :class:`Encoder`."""

    directory: str | os.PathLike[str]
    device: str = "auto"
    dtype: str = "auto"


class TaskBatch(NamedTuple):
    """The input of a model for a batch of items, as arrays.

    ``rows``: the tokens of all sequences.
    ``targets``: arrays by name, for the loss or the head, such as int64 classes or float scores.
    ``chosen``: the tokens whose hidden states the head reads, int64 [M], ascending; None: the
    head itself reads all tokens, or pools one vector of each sequence.
    """

    rows: TokenRows
    targets: Mapping[str, npt.NDArray[Any]]
    chosen: Integers | None = None


def feature_targets(items: Items) -> dict[str, npt.NDArray[Any]]:
    """Return ``{FEATURES: rows}``, a frozen encoder's cached outputs, as a target of the model.

    {}: the items have no cached outputs.
    """
    if FEATURES not in items.columns:
        return {}
    return {FEATURES: items.ragged(FEATURES).values}


def gather(offsets: Integers, numbers: Integers) -> tuple[Integers, Integers]:
    """Return indices that select the ragged values of items ``numbers``, int64 [n].

    Also returns the offsets of these items among the selected values.
    """
    lengths = offsets[numbers + 1] - offsets[numbers]
    ends = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    index = np.arange(ends[-1]) + np.repeat(offsets[numbers] - ends[:-1], lengths)
    return index, ends
