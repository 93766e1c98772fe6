"""The notebooks run from the first cell to the last, as the site shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
NOTEBOOKS = sorted(Path(__file__).parents[2].glob("examples/notebooks/*.ipynb"))


def test_there_are_five() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    book = json.loads(path.read_text("utf-8"))
    cells = ["".join(one["source"]) for one in book["cells"] if one["cell_type"] == "code"]
    assert all(not one.get("outputs") for one in book["cells"])
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(cells), "utf-8")
    found = subprocess.run(
        [sys.executable, script],
        cwd=path.parent,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
