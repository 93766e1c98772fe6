"""Locates queries, positives and negatives among the vectors of a step.

Dimensions: I items, each a query, its positives and its negatives in this order; S texts in all, B
positives, N negatives, C documents: the positives and the negatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from encoder_engine.dataclass import dataclass
from encoder_engine.tasks.embedders.examples import NUM_NEGATIVES, NUM_POSITIVES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["StepLayout", "ranges"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepLayout:
    """Indices of a step's texts in its S vectors, int64.

    ``queries_I``: the query of each item.
    ``positives_B``, ``queries_B``: each positive, and its query, which is listed once per positive.
    ``negatives_N``, ``owners_N``: each negative, and the index, among the B positives, of its
    item's first positive.
    ``items_B``, ``items_N``: the item of each positive and of each negative.
    """

    num_items: int
    queries_I: Tensor
    queries_B: Tensor
    positives_B: Tensor
    negatives_N: Tensor
    owners_N: Tensor
    items_B: Tensor
    items_N: Tensor

    @classmethod
    def of(cls, targets: Mapping[str, Tensor]) -> StepLayout:
        """Make the layout, given the numbers of positives and of negatives of each item."""
        positives_I, negatives_I = targets[NUM_POSITIVES], targets[NUM_NEGATIVES]
        sizes = 1 + positives_I + negatives_I
        queries_I = sizes.cumsum(0) - sizes
        items = torch.arange(len(sizes), device=sizes.device)
        items_B = items.repeat_interleave(positives_I)
        items_N = items.repeat_interleave(negatives_I)
        return cls(
            num_items=len(sizes),
            queries_I=queries_I,
            queries_B=queries_I[items_B],
            positives_B=ranges(queries_I + 1, positives_I),
            negatives_N=ranges(queries_I + 1 + positives_I, negatives_I),
            owners_N=(positives_I.cumsum(0) - positives_I)[items_N],
            items_B=items_B,
            items_N=items_N,
        )

    @property
    def documents(self) -> Tensor:
        """The indices of all documents, [C]: the positives, then the negatives."""
        return torch.cat([self.positives_B, self.negatives_N])

    @property
    def owners(self) -> Tensor:
        """The index, among the B positives, of the positive that each document belongs to, [C].

        A positive belongs to itself, a negative to its item's first positive.
        """
        own = torch.arange(len(self.positives_B), device=self.positives_B.device)
        return torch.cat([own, self.owners_N])

    @property
    def items(self) -> Tensor:
        """The item of each document [C], in the order of ``documents``."""
        return torch.cat([self.items_B, self.items_N])

    def by_item(self) -> tuple[Tensor, Tensor]:
        """Return the index of each document in the S vectors, and its item, [C] each.

        The documents are in the order of their items, each item's positives before its negatives.
        """
        order = torch.argsort(self.documents)
        return self.documents[order], self.items[order]


def ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Return ``counts[i]`` successive integers from ``starts[i]`` on for each i, concatenated."""
    firsts = (starts - (counts.cumsum(0) - counts)).repeat_interleave(counts)
    return firsts + torch.arange(len(firsts), device=starts.device)
