"""Random changes of accelerated models, a few of those that ``mutations.py`` draws by thousands."""

from __future__ import annotations

import pytest

from tests.integrations.mutations import run

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "seed", [11, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (12, 13))]
)
def test_changed_models_compute_as_plain_ones_or_are_refused(seed: int) -> None:
    tally = run(12, seed)
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.equal > 5
