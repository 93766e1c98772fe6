"""Choose the cases of a parametrized test: those that can run here, and those of the short run.

A case that its implementation refuses is not generated; ``tests/ops/refusals/listing.json`` lists
the refusals. Of a test with three axes or more, the cases beyond all pairs of two axes' values are
marked ``exhaustive``. Most faults need one value or a pair of them (Kuhn, Wallace and Gallo 2004,
Software Fault Interactions and Implications for Software Testing).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import Any

import pytest
import torch

from encoder_engine.ops import gpu

Refusal = Callable[..., str | None]


def unless(refusal: Refusal) -> pytest.MarkDecorator:
    """Generate a case only where ``refusal`` of its parameters is None.

    ``refusal`` takes the parameters it names. A test without an accepted case is skipped with the
    reason of the first.
    """
    return pytest.mark.unless.with_args(refusal)


def select(items: list[pytest.Function]) -> list[pytest.Function]:
    """Return the cases of one test that are accepted; mark those beyond all pairs."""
    reasons = [_refusal(item) for item in items]
    accepted = [item for item, reason in zip(items, reasons, strict=True) if reason is None]
    if not accepted:
        for item, reason in zip(items[:1], reasons, strict=False):
            item.add_marker(pytest.mark.skip(reason=reason or ""))
        return items[:1]
    for item in accepted:
        by_triton = any(isinstance(x, str) and x == "triton" for x in parameters(item).values())
        if by_triton and gpu.interpreted():
            # A hundred times as long as compiled.
            item.add_marker(pytest.mark.slow)
    # The unit tests cover every pair they have by themselves, the slow ones what is left.
    places = [n for n, item in enumerate(accepted) if item.get_closest_marker("exhaustive") is None]
    unit = [n for n in places if accepted[n].get_closest_marker("slow") is None]
    cases = [_axes(item) for item in accepted]
    chosen = {unit[n] for n in all_pairs([cases[n] for n in unit])}
    there = [place for place, n in enumerate(places) if n in chosen]
    chosen |= {places[n] for n in all_pairs([cases[n] for n in places], there)}
    for place, item in enumerate(accepted):
        if place not in chosen:
            item.add_marker(pytest.mark.exhaustive)
    return accepted


def all_pairs(cases: Sequence[Mapping[str, Hashable]], first: Sequence[int] = ()) -> list[int]:
    """Choose cases until every pair of values that two axes take together is covered.

    ``cases`` maps axes to values; those at ``first`` are chosen already. Returns places in
    ``cases``, ascending; the same for the same cases. Greedy: the next case is the one that
    covers the most pairs that are missing.
    """
    names = [name for name in (cases[0] if cases else ()) if len({c[name] for c in cases}) > 1]
    if len(names) < 3:
        return list(range(len(cases)))
    return _cover([{*combinations(((n, case[n]) for n in names), 2)} for case in cases], first)


def covering(
    rows: Iterable[tuple[Any, ...]], covers: Callable[..., Iterable[Hashable]]
) -> list[Any]:
    """Make cases of a table, and mark those ``exhaustive`` that cover nothing more.

    ``covers`` of a row: what the chosen rows have to cover, such as a family in a precision.
    """
    table = list(rows)
    chosen = {*_cover([set(covers(*row)) for row in table])}
    return [
        pytest.param(*row, marks=[] if place in chosen else pytest.mark.exhaustive)
        for place, row in enumerate(table)
    ]


def _cover(covered: Sequence[Set[Hashable]], first: Sequence[int] = ()) -> list[int]:
    """Return the places, ascending and those of ``first`` among them, that cover everything."""
    missing = set[Hashable]().union(*covered).difference(*(covered[place] for place in first))
    # What a case covers only shrinks: a stale count is recounted when it comes to the top.
    queue = [(-len(new), place) for place, new in enumerate(covered)]
    heapify(queue)
    chosen = list(first)
    while missing:
        _, place = heappop(queue)
        entry = (-len(covered[place] & missing), place)
        if queue and entry > queue[0]:
            heappush(queue, entry)
            continue
        chosen.append(place)
        missing -= covered[place]
    return sorted(chosen)


def parameters(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters of a case; empty for a test without."""
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else dict(callspec.params)


def _axes(item: pytest.Function) -> dict[str, Hashable]:
    """Map each ``parametrize`` of a case, and each parameter of a fixture, to its value.

    All cases of a test share the values' objects, so identity tells values apart that do not hash.
    """
    given = parameters(item)
    axes: dict[str, Hashable] = {}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        split = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        axes[",".join(split)] = tuple(id(given.pop(name, None)) for name in split)
    return axes | {name: id(value) for name, value in given.items()}


def _refusal(item: pytest.Function) -> str | None:
    if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        return "no CUDA device"
    given = parameters(item)
    for mark in item.iter_markers("unless"):
        refusal = mark.args[0]
        wanted = inspect.signature(refusal).parameters
        reason: str | None = refusal(**{name: given[name] for name in wanted if name in given})
        if reason is not None:
            return reason
    return None
