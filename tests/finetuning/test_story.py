"""The commands of docs/finetuning.md's first model work as they stand.

Blocks of ``py`` name models of the hub, and are not run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

PAGE = (ROOT / "docs" / "finetuning.md").read_text("utf-8")
STORY = PAGE[: PAGE.index("\n## Tasks\n")]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_from_a_labelled_file_to_a_model_in_transformers(minilm: Path, tmp_path: Path) -> None:
    assert minilm.is_dir()
    pytest.importorskip("transformers")
    command = Path(sys.executable).parent / "encoder-engine"
    if not command.exists():
        pytest.skip("the package is not installed here, so there is no encoder-engine command")
    path = f"{command.parent}:{os.environ['PATH']}"
    printed = ""
    for language, text in re.findall(r"```(sh|python)\n(.*?)```", STORY, re.DOTALL):
        program = ["bash", "-euc"] if language == "sh" else [sys.executable, "-c"]
        ran = subprocess.run(
            [*program, text],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr + ran.stdout
        printed = ran.stdout
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["prediction"] for line in lines] == ["bad", "good"]
    numbers = re.findall(r"-?\d+\.\d+", printed)
    # Probabilities, then the logits of transformers and ours: each is right to half a last digit.
    for theirs, ours in zip(numbers[2:4], numbers[4:6], strict=True):
        halves = [0.5 * 10.0 ** -len(text.partition(".")[2]) for text in (theirs, ours)]
        assert abs(float(theirs) - float(ours)) <= sum(halves)
