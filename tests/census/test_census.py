"""Every repository of the census has the verdict that is recorded, and on which the page rests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.census.directories import read_repositories
from tests.census.verdicts import VERDICTS, verdict

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORIES = read_repositories()
RECORDED = json.loads(VERDICTS.read_text("utf-8"))


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_repository_has_its_recorded_verdict(name: str, tmp_path: Path) -> None:
    found = verdict(REPOSITORIES[name], tmp_path / "model")
    assert found == RECORDED[name], "run python -m tests.census.verdicts, and make docs"


def test_the_record_is_of_these_repositories() -> None:
    assert RECORDED.keys() == REPOSITORIES.keys()
    assert len(REPOSITORIES) >= 150


def test_every_refusal_of_a_known_architecture_names_what_would_lift_it() -> None:
    """A family that is unknown is what would lift the others."""
    unexplained = [
        name
        for name, found in RECORDED.items()
        if "refused" in found
        and "lifts" not in REPOSITORIES[name]
        and not found["refused"].startswith("model_type ")
        and REPOSITORIES[name]["loader"] != "StaticEmbedder"
    ]
    assert not unexplained


def test_nothing_that_loads_is_said_to_need_more() -> None:
    stale = [n for n, found in RECORDED.items() if "as" in found and "lifts" in REPOSITORIES[n]]
    assert not stale
