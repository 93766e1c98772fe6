"""Packed attention by SDPA with gradients: sorts rows by length once instead of once per group.

Gathering each group's rows from the packed tensor would cost a gradient tensor of all rows for each
group in backward. Sorting moves all groups in one step, and back in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine.ops.aten.attention_groups import Group, attend_group, taken
from encoder_engine.packing.sequences import moved

if TYPE_CHECKING:
    from torch import Tensor

    from encoder_engine.kernels.attention.terms import Terms
    from encoder_engine.packing import SelectedRows, Sequences


class _Queries(NamedTuple):
    """The selected query rows, one group of sequences of equal length after the other.

    All sequences of a group get as many rows as the one with the most; places without a row of
    their own repeat the first selected row.
    """

    numbers: list[int]  # queries of each sequence, by group
    rows: Tensor  # int64 [sum of n * Q], places in the list of selected rows, by group
    places: list[Tensor]  # int64 [n, Q] of each group, places in the sequences
    found: Tensor  # int64 [M], the index of each selected row in ``rows``


def attend_sorted(
    query_MHD: Tensor, key_TKD: Tensor, value_TKD: Tensor, sequences: Sequences, terms: Terms
) -> Tensor:
    """Compute packed attention by one SDPA call per distinct length of the sequences."""
    groups = sequences.length_groups
    sizes = [len(group.members) * group.length for group in groups]
    keys, values = (_split(_sorted(x, sequences), sizes) for x in (key_TKD, value_TKD))
    selected = None if terms.query_rows is None else _queries_of(terms.query_rows)
    if selected is None:
        numbers = [group.length for group in groups]
        queries = _split(_sorted(query_MHD, sequences), sizes)
    else:
        numbers = selected.numbers
        counts = [len(g.members) * n for g, n in zip(groups, numbers, strict=True)]
        queries = _split(_looked_up(selected.rows, query_MHD), counts)
    outputs = []
    for place, (found, number) in enumerate(zip(groups, numbers, strict=True)):
        if number == 0:
            continue
        places = None if selected is None else selected.places[place]
        group = Group(found.length, found.rows, number, slice(0), places)
        query = taken(queries[place], slice(None), number)
        key, value = (taken(x[place], slice(None), found.length) for x in (keys, values))
        outputs.append(attend_group(group, query, key, value, terms))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if selected is not None:
        return _looked_up(selected.found, joined)
    rows, order = sequences.grouped_rows, sequences.grouped_order
    return joined if order is None else _moved(joined, order, rows)


def _split(rows_THD: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    return torch.split(rows_THD, sizes) if len(sizes) > 1 else (rows_THD,)


def _sorted(rows_THD: Tensor, sequences: Sequences) -> Tensor:
    rows, order = sequences.grouped_rows, sequences.grouped_order
    return rows_THD if rows is None else _moved(rows_THD, rows, order)


def _looked_up(rows_M: Tensor, from_THD: Tensor) -> Tensor:
    """Gather rows by an embedding look-up, whose backward adds up gradients of repeated rows."""
    return F.embedding(rows_M, from_THD.flatten(1)).view(-1, *from_THD.shape[1:])


class _Moved(torch.autograd.Function):
    """Permutes rows; backward permutes the gradient back."""

    @staticmethod
    def forward(ctx: Any, rows_THD: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(order, back)
        return rows_THD.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad_THD: Tensor) -> tuple[Tensor, None, None]:
        order, back = ctx.saved_tensors
        return _moved(grad_THD, back, order), None, None


def _moved(rows_THD: Tensor, order: Tensor, back: Tensor | None) -> Tensor:
    moved: Tensor = _Moved.apply(rows_THD, order, back)  # type: ignore[no-untyped-call]
    return moved


def _queries_of(selected: SelectedRows) -> _Queries:
    """Return the selected rows as :class:`_Queries`.

    The sequences' lengths are read on the host, without a wait for the device.
    """
    within, sequences, device = selected.within, selected.sequences, selected.rows.device
    places_M = selected.indices - np.repeat(sequences.offsets[:-1], within.lengths)
    numbers, rows, places = [], [], []
    found = np.empty(len(selected.rows), np.int64)
    before = 0
    for group in sequences.length_groups:
        members = np.flatnonzero(sequences.lengths == group.length)
        starts, counts = within.offsets[members], within.lengths[members]
        number = int(counts.max(initial=0))
        numbers.append(number)
        steps = np.arange(number)
        there = steps < counts[:, None]
        taken = np.where(there, starts[:, None] + steps, 0)
        found[taken[there]] = before + np.flatnonzero(there)
        before += there.size
        rows.append(taken.reshape(-1))
        places.append(moved(torch.from_numpy(places_M[taken]), device))
    joined = moved(torch.from_numpy(np.concatenate(rows)), device)
    return _Queries(numbers, joined, places, moved(torch.from_numpy(found), device))
