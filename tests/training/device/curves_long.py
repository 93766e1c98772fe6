"""Trains the tiny recipe with each of several settings, some seeds each, and compares the curves.

    python -m tests.training.device.curves_long CORPUS --steps 1000 --seeds 3 \
        --with run.residual=float32 --with run.residual=bfloat16 --set run.precision=bfloat16

The seeds of a setting give its interval: mean and two standard deviations of the loss, of each
tenth of the run and held out. Two settings agree where the mean of each lies within the interval
of the other. Exits with 1 where one does not agree with the first.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.training import Trainer
from encoder_engine.training.pretraining.recipe_reader import find_recipe

if TYPE_CHECKING:
    import numpy.typing as npt

PARTS = 10


def train(corpus: str, steps: int, seed: int, settings: list[str]) -> npt.NDArray[np.float64]:
    """Return the mean loss of each tenth of a run, then the held-out loss."""
    fixed = [f"data.corpus={corpus}", f"run.steps={steps}", f"run.seed={seed}"]
    fixed += [f"run.evaluate_every={steps}", f"run.checkpoint_every={steps}"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        scores = Trainer(find_recipe("tiny", fixed + settings), folder).run()
        lines = (folder / "log.jsonl").read_text().splitlines()
    losses = np.array([json.loads(line)["loss"] for line in lines])
    parts = [float(part.mean()) for part in np.array_split(losses, PARTS)]
    return np.array([*parts, scores["mlm_loss"]])


def main() -> None:
    """Train, print the curves, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--with", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    curves: dict[str, npt.NDArray[np.float64]] = {}
    for setting in given.settings:
        runs = [
            train(given.corpus, given.steps, seed, [*given.set, *setting.split(",")])
            for seed in range(given.seeds)
        ]
        curves[setting] = np.stack(runs)
        mean, spread = curves[setting].mean(axis=0), 2 * curves[setting].std(axis=0, ddof=1)
        print(setting, *(f"{m:.4f}±{s:.4f}" for m, s in zip(mean, spread, strict=True)), flush=True)
    first, *others = curves.values()
    apart = [_apart(first, other) or _apart(other, first) for other in others]
    for setting, differs in zip(given.settings[1:], apart, strict=True):
        print(f"{setting}: {'apart from' if differs else 'agrees with'} {given.settings[0]}")
    sys.exit(any(apart))


def _apart(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> bool:
    spread = 2 * theirs.std(axis=0, ddof=1)
    return bool((np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) > spread).any())


if __name__ == "__main__":
    main()
