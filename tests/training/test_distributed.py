"""Two processes compute what one does, and either goes on with what the other began."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from encoder_engine.locks import FolderLock
from encoder_engine.training.log import read_log
from tests import ROOT
from tests.training.runs import as_float64, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
# In float64, without dropout: sums in another order, and nothing else.
EXACT = [
    "run.precision=float64",
    "model.config.hidden_dropout_prob=0.0",
    "model.config.attention_probs_dropout_prob=0.0",
    "run.deterministic=false",
]
NOISE = 1e-12


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
        timeout=1_800,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    run(corpus, folder, *EXACT)
    return folder


def compare(folder: Path, alone: Path) -> None:
    found, expected = read_log(folder), read_log(alone)
    assert [r["tokens"] for r in found] == [r["tokens"] for r in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=NOISE)
        assert one["norm"] == pytest.approx(other["norm"], rel=NOISE)
        if "evaluation" in other:
            assert one["evaluation"] == pytest.approx(other["evaluation"], rel=NOISE)


DROPOUT = [f"model.config.{name}_dropout_prob=0.1" for name in ("hidden", "attention_probs")]
ELECTRA = [
    "model.config.model_type=electra",
    "model.config.embedding_size=12",
    "objectives.generator.intermediate_size=8",
]
RETROMAE = ["data.form=sentences", "objectives.decoder_mask_probability=0.5"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "settings",
    [
        ["run.sharding=full", "run.ema=0.9", "optimizer.name=lamb"],
        ["run.sharding=full", "run.ema=0.9", "optimizer.name=stable_adamw", *DROPOUT],
        ["run.sharding=none", "run.ema=0.9", *ELECTRA],
        ["run.sharding=none", *RETROMAE],
        ["run.sharding=full", *RETROMAE],
    ],
    ids=" ".join,
)
def test_two_processes_draw_average_and_step_as_one(
    corpus: Path, tmp_path: Path, settings: list[str]
) -> None:
    run(corpus, tmp_path / "alone", *EXACT, *settings)
    run_two(corpus, tmp_path / "two", *settings)
    compare(tmp_path / "two", tmp_path / "alone")
    theirs, ours = (load_file(tmp_path / n / "model/model.safetensors") for n in ("alone", "two"))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=NOISE, atol=NOISE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_processes_step_by_muon(
    corpus: Path, tmp_path: Path, sharding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "bfloat16", as_float64)
    settings = ["optimizer.name=muon", "run.steps=4"]
    run(corpus, tmp_path / "alone", *EXACT, *settings)
    run_two(corpus, tmp_path / "two", *settings, f"run.sharding={sharding}")
    compare(tmp_path / "two", tmp_path / "alone")


@pytest.mark.exhaustive
def test_what_the_first_process_is_refused_both_say(corpus: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "tests.training.runs", str(corpus), str(tmp_path)]
    together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with FolderLock(tmp_path), ExitStack() as started:
        # Not by torchrun, which ends the one when the other has ended.
        both = [
            started.enter_context(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=os.environ | own | together | {"RANK": rank, "LOCAL_RANK": rank},
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in ("0", "1")
        ]
        for process in both:
            said = process.communicate(timeout=1_800)[1]
            assert "LockedError" in said, said[-3000:]
            assert "is being written by another run" in said


@pytest.mark.parametrize("sharding", [pytest.param("none", marks=pytest.mark.exhaustive), "full"])
def test_two_processes_have_the_losses_of_one(
    corpus: Path, tmp_path: Path, alone: Path, sharding: str
) -> None:
    # Three micro-batches for two processes: unequal shares.
    run_two(corpus, tmp_path / "two", f"run.sharding={sharding}")
    compare(tmp_path / "two", alone)
    assert (tmp_path / "two/model/model.safetensors").is_file()


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_two_processes_go_on_with_what_one_began(
    corpus: Path, tmp_path: Path, alone: Path, sharding: str
) -> None:
    run(corpus, tmp_path / "run", *EXACT, stop_at=7)
    run_two(corpus, tmp_path / "run", f"run.sharding={sharding}")
    compare(tmp_path / "run", alone)
