"""Damaged stores by chance, some of the many that ``tests.vectors.damaged_stores`` draws."""

from __future__ import annotations

import pytest

from tests.vectors import damaged_stores


@pytest.mark.slow
def test_a_damaged_store_gives_its_own_results_or_an_error() -> None:
    outcomes, wrong = damaged_stores.run(120, 0)
    assert not wrong
    assert outcomes["equal"] > 10
    assert outcomes["ReadError"] > 10


@pytest.mark.slow
def test_damage_that_nobody_looked_for_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "encoder_engine.vectors.stored_vectors.StoredVectors._check", lambda *_: None
    )
    _, wrong = damaged_stores.run(80, 3)
    assert {outcome for _, outcome in wrong} == {"DIFFERENT"}
