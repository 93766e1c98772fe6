"""The walk of docs/walk.md, walked again: the same rows are found and the same counts told."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT


@pytest.fixture(scope="module")
def make_walk() -> Any:
    spec = importlib.util.spec_from_file_location("make_walk", ROOT / "docs" / "make_walk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stable(page: str) -> str:
    """Leave out what no two runs have in common: times, rates, and the last digit of a score."""
    page = re.sub(r"(seconds|throughput) +.*", r"\1", page)
    return re.sub(r"(0\.\d{3})\d", r"\1", page)


def test_the_walk_takes_fewer_than_five_commands_and_ends_where_it_says(
    make_walk: Any, minilm: Path, tmp_path: Path
) -> None:
    assert minilm.is_dir()
    if not (Path(sys.executable).parent / "encoder-engine").exists():
        pytest.skip("the package is not installed here, so there is no encoder-engine command")
    assert len([make_walk.INSTALL, *make_walk.COMMANDS]) < 5
    page = make_walk.render(make_walk.walk(tmp_path))
    assert stable(page) == stable(make_walk.TARGET.read_text("utf-8"))
    assert (tmp_path / "map.html").is_file()
