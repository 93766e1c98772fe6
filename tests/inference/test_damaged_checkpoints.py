"""Damaged checkpoints by chance, some of the many that ``damaged_checkpoints`` draws."""

from __future__ import annotations

import pytest

from tests import damage
from tests.inference.damaged_checkpoints import run_case


@pytest.mark.slow
def test_damaged_checkpoints_are_refused_or_have_the_librarys_tensors() -> None:
    counts, findings = damage.run(run_case, 100, seed=7)
    assert not findings
    assert counts["refused"] > 50
    assert counts["equal"] > 10
