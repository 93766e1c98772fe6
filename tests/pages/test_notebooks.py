"""The notebooks run from the first cell to the last, as the site shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
NOTEBOOKS = sorted(ROOT.glob("examples/notebooks/*.ipynb"))
CORPUS = "examples/python_stdlib.jsonl"
# The usual run has every so many texts of the corpus, and fewer steps; the site has all of them.
EVERY = {"first_search": 16, "looking_inside": 16, "swap_in": 48}
FEWER = {
    "pretraining": {"run.steps=150": "run.steps=20", "evaluate_every=30": "evaluate_every=10"},
    "fine_tuning": {"run.epochs=8": "run.epochs=2"},
}


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5
    assert {path.stem for path in NOTEBOOKS} == {*EVERY, *FEWER}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, whole: bool) -> None:
    pytest.importorskip("matplotlib")
    book = json.loads(path.read_text("utf-8"))
    cells = ["".join(one["source"]) for one in book["cells"] if one["cell_type"] == "code"]
    assert all(not one.get("outputs") for one in book["cells"])
    program = "\n\n".join(cells)
    texts = (ROOT / CORPUS).read_text("utf-8").splitlines(keepends=True)
    if not whole:
        for usual, fewer in FEWER.get(path.stem, {}).items():
            assert usual in program
            program = program.replace(usual, fewer)
        texts = texts[:: EVERY.get(path.stem, 1)]
    # A notebook finds the corpus in a folder above its own.
    place = tmp_path / "examples" / "notebooks"
    place.mkdir(parents=True)
    (tmp_path / CORPUS).write_text("".join(texts), "utf-8")
    (place / "notebook.py").write_text(program, "utf-8")
    found = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=place,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
