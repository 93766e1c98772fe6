"""Each operation's implementations refuse what the list says, in their own sentences."""

from __future__ import annotations

import json

import pytest

from encoder_engine import ops
from tests.ops.refusals.listing import OF_THE_MACHINE, TABLE, Refusals, refusals

COMMITTED: dict[str, Refusals] = json.loads(TABLE.read_text(encoding="utf-8"))


def by_call(table: Refusals) -> dict[tuple[str, str], str]:
    return {
        (implementation, call): sentence
        for implementation, sentences in table.items()
        for sentence, calls in sentences.items()
        for call in calls
    }


def test_every_operation_is_listed() -> None:
    assert set(COMMITTED) == set(ops.operations()), (
        "run TRITON_INTERPRET=1 python -m tests.ops.refusals.listing"
    )


@pytest.mark.parametrize("operation", sorted(COMMITTED))
def test_what_is_refused_is_listed_and_nothing_else(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The list is that of a machine without a GPU: with one, Triton compiles.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found, listed = by_call(refusals(operation)), by_call(COMMITTED[operation])
    here = {pair for pair, sentence in found.items() if sentence in OF_THE_MACHINE}
    changed = {
        pair: (listed.get(pair), found.get(pair))
        for pair in (found.keys() | listed.keys()) - here
        if listed.get(pair) != found.get(pair)
    }
    assert not changed, (
        f"(listed, found): {changed}; if meant, run "
        "TRITON_INTERPRET=1 python -m tests.ops.refusals.listing"
    )
