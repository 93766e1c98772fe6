"""Two processes take the steps of one: equal losses, equal scores, one model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_processes_take_the_steps_of_one(checkpoint: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for name, num_rows in (("train", 43), ("dev", 17)):
        lines = []
        for _ in range(num_rows):
            words = rng.choice(["good", "bad", "film", "plot"], size=int(rng.integers(1, 30)))
            row = {"words": list(words), "tags": ["O" if w == "bad" else "B-X" for w in words]}
            lines.append(json.dumps(row) + "\n")
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    # Steps of 5 sentences: the processes count different numbers of words, one may have no batch.
    settings = ["run.precision=float64", "model.dropout=0", "batch.examples=5", "run.epochs=2"]
    settings += ["run.device=cpu", "data.max_length=16", "optimizer.learning_rate=1e-3"]
    settings += ["task.decoding=crf", "report.samples=0"]
    command = ["finetune", "token-classification", "--model", str(checkpoint), "--quiet"]
    command += ["--train", str(tmp_path / "train.jsonl"), "--dev", str(tmp_path / "dev.jsonl")]
    command += [part for setting in settings for part in ("--set", setting)]
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    for name, launcher in (("one", []), ("two", torchrun)):
        ran = subprocess.run(
            [sys.executable, "-m", *launcher, "encoder_engine.cli", *command, "--output", name],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=1_800,
        )
        assert ran.returncode == 0, ran.stderr[:3000]
    logs = [
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    ]
    assert len(logs[0]) == len(logs[1]) > 10
    one, two = ([line["loss"] for line in log] for log in logs)
    np.testing.assert_allclose(one, two, rtol=1e-11)
    reports = [json.loads((tmp_path / n / "report.json").read_text()) for n in ("one", "two")]
    assert reports[0]["scores"] == pytest.approx(reports[1]["scores"], rel=1e-9)
    first, second = (
        load_file(tmp_path / n / "model" / "model.safetensors") for n in ("one", "two")
    )
    for name, weight in first.items():
        np.testing.assert_allclose(second[name], weight, rtol=0, atol=1e-9, err_msg=name)
