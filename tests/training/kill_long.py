"""Kills tiny runs at random moments, as often as asked, and compares their logs with whole runs'.

Each goes on with another number of threads; whole runs have one.

::

    python -m tests.training.kill_long --times 30 --seed 1
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT
from tests.training.runs import draw_corpus
from tests.training.test_trainer import kill_at_random


def main() -> int:
    """Run, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        corpus, faults = draw_corpus(Path(scratch) / "corpus"), 0
        for precision in ("float32", "bfloat16"):
            whole, broken = (Path(scratch) / f"{precision}-{name}" for name in ("whole", "broken"))
            settings = ["run.steps=120", "run.checkpoint_every=2", f"run.precision={precision}"]
            environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            program = [sys.executable, "-m", "tests.training.runs"]
            command = [*program, str(corpus), str(whole), *settings]
            subprocess.run(command, cwd=ROOT, env=environment, check=True)
            killed = kill_at_random(corpus, broken, given.times, *settings, seed=given.seed)
            same = {
                name: (broken / name).read_bytes() == (whole / name).read_bytes()
                for name in ("log.jsonl", "model/model.safetensors")
            }
            print(f"{precision}: killed {killed} times of {given.times}; the same bytes: {same}")
            faults += not (all(same.values()) and killed)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
