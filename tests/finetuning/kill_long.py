"""Kills a tiny fine-tuning run at drawn moments, and compares it with a run that was not killed.

Every second kill waits until a file of the model, a checkpoint or the report is being written.

::

    python -m tests.finetuning.kill_long --times 30 --seed 1
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests import ROOT
from tests.finetuning.tiny import write_checkpoint, write_rows

# The settings of a run that evaluates, improves and saves often.
SETTINGS = (
    "run.device=cpu",
    "run.steps=160",
    "run.evaluate_every=4",
    "run.checkpoint_every=2",
    "batch.examples=8",
    "optimizer.learning_rate=3e-4",
    "report.samples=50",
)
SAME = ("log.jsonl", "report.json", "model/model.safetensors", "model/task.json")


def command_of(folder: Path, output: Path) -> list[str]:
    """Return the command that begins the run, and resumes it."""
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl")]
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    verb = [sys.executable, "-m", "encoder_engine.cli", "finetune", "sequence-classification"]
    checkpoint = ["--model", str(folder / "checkpoint"), "--output", str(output)]
    return [*verb, *checkpoint, *files, *settings, "--threads", "1", "-q"]


def unpublished(output: Path) -> set[Path]:
    """Return the files and folders of the run's folder that are not yet published."""
    places = (output, output / "checkpoints")
    paths = {path for place in places if place.is_dir() for path in place.iterdir()}
    return {
        path
        for path in paths
        if path.name.startswith(".") or path.name.endswith((".tmp", ".partial"))
    }


def kill_at_random(command: list[str], output: Path, times: int, seed: int) -> tuple[int, int]:
    """Start the run again and again, and kill it; return the kills, and those while it saved."""
    generator = np.random.default_rng(seed)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    killed = saving = 0
    for number in range(times):
        left = unpublished(output)
        with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
            ends = time.monotonic() + 60
            log = output / "speed.jsonl"
            size = log.stat().st_size if log.exists() else -1
            # Training has begun where the log grows; importing is not to be interrupted.
            while process.poll() is None and time.monotonic() < ends:
                if log.exists() and log.stat().st_size != size:
                    break
                time.sleep(0.002)
            time.sleep(float(generator.random()) * 0.1)
            if number % 2:
                ends = time.monotonic() + 5
                while process.poll() is None and time.monotonic() < ends:
                    if unpublished(output) - left:
                        break
            caught = bool(unpublished(output) - left)
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
        saving += caught and process.returncode == -signal.SIGKILL
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return killed, saving


def main() -> int:
    """Run, print the result, and return 1 where a byte differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_checkpoint(folder / "checkpoint")
        write_rows(folder / "train.jsonl", num_rows=64, seed=0)
        write_rows(folder / "dev.jsonl", num_rows=32, seed=1)
        whole, broken = folder / "whole", folder / "broken"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(command_of(folder, whole), cwd=ROOT, env=environment, check=True)
        killed, saving = kill_at_random(command_of(folder, broken), broken, given.times, given.seed)
        same = {name: (broken / name).read_bytes() == (whole / name).read_bytes() for name in SAME}
    print(
        f"killed {killed} times of {given.times}, {saving} of them while saving; "
        f"the same bytes: {same}"
    )
    return 0 if all(same.values()) and killed else 1


if __name__ == "__main__":
    sys.exit(main())
