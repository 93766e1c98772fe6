"""transformers' own tests under our attention: what was written down, and again where they are."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.integrations.peer_suite import TARGET, load_mixin, run_family
from tests.models.cases import one_per_family

SOURCES = "ENCODER_ENGINE_TRANSFORMERS_SOURCES"
# Of the layers' own function for checkpointing, whose calls are counted.
COUNTED = "training_gradient_checkpointing"


def test_nothing_failed_under_our_attention_that_passes_as_it_comes() -> None:
    rows = re.findall(r"^\| `(.*)` \| (.*) \|$", TARGET.read_text("utf-8"), re.MULTILINE)
    assert len(rows) >= 5
    for family, counts in rows:
        passed, failed, ours, refused, ours_failed, *_ = (int(x) for x in counts.split(" | "))
        assert (failed, ours_failed) == (0, 0), family
        assert ours + refused == passed, family
        assert refused <= 3, family


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_bert_passes_its_own_tests() -> None:
    pytest.importorskip("parameterized", reason="transformers' tests ask for parameterized")
    if SOURCES not in os.environ:
        pytest.skip(f"{SOURCES} does not name a folder of transformers' source distribution")
    case = next(case for case in one_per_family() if case.model_type == "bert")
    report = run_family(load_mixin(Path(os.environ[SOURCES])), case)
    assert [line for line in report.broken if COUNTED not in line] == []
