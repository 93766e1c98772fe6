"""The list of what the oldest PyTorch fails names tests that exist."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.oldest_torch import FAILS


@pytest.mark.parametrize("name", FAILS)
def test_a_name_of_the_list_is_of_a_test(name: str) -> None:
    path, _, test = name.partition("[")[0].partition("::")
    assert f"def {test or 'test_'}" in (ROOT / path).read_text("utf-8")
