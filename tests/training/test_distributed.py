"""Two processes compute what one does, and either goes on with what the other began."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from encoder_engine.training import Trainer
from encoder_engine.training.log import read_log
from tests.training.runs import small_recipe

if TYPE_CHECKING:
    from encoder_engine.training.trainer import Moment

ROOT = Path(__file__).parents[2]
# In float64, without dropout: sums in another order, and nothing else.
EXACT = [
    "run.precision=float64",
    "model.config.hidden_dropout_prob=0.0",
    "model.config.attention_probs_dropout_prob=0.0",
    "run.deterministic=false",
]
NOISE = 1e-9


class StoppedError(Exception):
    """A run is interrupted."""


def run_two(corpus: Path, folder: Path, *settings: str) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "-m", "tests.training.runs", str(corpus), str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*torchrun, *EXACT, *settings],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    Trainer(small_recipe(corpus, *EXACT), folder).run()
    return folder


def compare(folder: Path, alone: Path) -> None:
    found, expected = read_log(folder), read_log(alone)
    assert [r["tokens"] for r in found] == [r["tokens"] for r in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=NOISE)
        assert one["norm"] == pytest.approx(other["norm"], rel=NOISE)
        if "evaluation" in other:
            assert one["evaluation"] == pytest.approx(other["evaluation"], rel=NOISE)


@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_processes_have_the_losses_of_one(
    corpus: Path, tmp_path: Path, alone: Path, sharding: str
) -> None:
    # Three micro-batches for two processes: unequal shares.
    run_two(corpus, tmp_path / "two", f"run.sharding={sharding}")
    compare(tmp_path / "two", alone)
    assert (tmp_path / "two/model/model.safetensors").is_file()


@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_processes_go_on_with_what_one_began(
    corpus: Path, tmp_path: Path, alone: Path, sharding: str
) -> None:
    def watch(moment: Moment) -> None:
        if moment.step == 7:
            raise StoppedError

    with pytest.raises(StoppedError):
        Trainer(small_recipe(corpus, *EXACT), tmp_path / "run").run(watch)
    run_two(corpus, tmp_path / "run", f"run.sharding={sharding}")
    compare(tmp_path / "run", alone)
