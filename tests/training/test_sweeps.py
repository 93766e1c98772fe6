"""Sweeps train every combination with every seed, and their table has means and t intervals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import t

from encoder_engine.cli import main
from encoder_engine.cli.sweeping import run_and_print
from encoder_engine.errors import ConfigError, NonFiniteLossError
from encoder_engine.training.log import read_log
from encoder_engine.training.sweeps import read_sweep, run_sweep, sweep_table
from tests.training.runs import CONFIG

if TYPE_CHECKING:
    from pathlib import Path


def test_combinations_are_all_and_commas_in_brackets_do_not_separate() -> None:
    assert read_sweep([]) == [{}]
    assert read_sweep(["a.b=1,2", "c=[1, 2],[3]"]) == [
        {"a.b": first, "c": second} for first in "12" for second in ("[1, 2]", "[3]")
    ]
    assert read_sweep(["a=[[1,2],[3,4]],{x: [5,6], y: 7}"]) == [
        {"a": "[[1,2],[3,4]]"},
        {"a": "{x: [5,6], y: 7}"},
    ]
    for bad in (["a"], ["=1"], ["a=1,"], ["a="], ["a=1", "a=2"], ["a=1,1"]):
        with pytest.raises(ConfigError):
            read_sweep(bad)


def test_means_and_intervals_are_over_the_seeds_of_a_combination(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0).normal(size=(2, 4))
    seen: list[tuple[list[str], int, str]] = []

    def run(settings: list[str], seed: int, folder: Path) -> dict[str, float]:
        seen.append((settings, seed, folder.relative_to(tmp_path).as_posix()))
        row = 0 if settings == ["k=a"] else 1
        folder.mkdir(parents=True)
        return {"loss": float(drawn[row, seed])} | ({"more": 1.0} if row else {})

    cells = run_sweep(tmp_path, read_sweep(["k=a,b"]), 4, read=list, run=run)
    assert seen[5] == (["k=b"], 1, "k=b/seed-1")
    for cell, row in zip(cells, drawn, strict=True):
        half = t.ppf(0.975, 3) * row.std(ddof=1) / 2
        assert cell.scores["loss"] == pytest.approx(row.mean())
        assert cell.intervals["loss"].high == pytest.approx(row.mean() + half)
    table = sweep_table(cells)
    assert table[0] == ["k", "loss", "more"]
    assert table[1][0] == "a"
    assert table[1][2] == "-"
    assert table[1][1].startswith(f"{drawn[0].mean():.3f} \u00b1 ")
    recorded = json.loads((tmp_path / "sweep.json").read_text())
    assert recorded["rows"][1]["settings"] == {"k": "b"}
    with pytest.raises(ConfigError, match="would share the folder"):
        run_sweep(tmp_path, read_sweep(["k=a/b,a:b"]), 1, read=list, run=run)
    with pytest.raises(ConfigError, match="a name of 302 bytes"):
        run_sweep(tmp_path, read_sweep([f"k={'a' * 300}"]), 1, read=list, run=run)


def test_a_combination_that_diverges_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(settings: list[str], seed: int, folder: Path) -> dict[str, float]:
        folder.mkdir(parents=True, exist_ok=True)
        if settings == ["rate=9"] and seed == 1:
            raise NonFiniteLossError("the loss is nan at step 3")
        return {"loss": 1.0 + seed}

    options = {"seeds": 2, "as_json": False, "quiet": False}
    run_and_print(list, run, str(tmp_path), {**options, "sweep": ("rate=9,1",)}, digits=1)
    shown = capsys.readouterr()
    assert [line.split()[:2] for line in shown.out.splitlines()] == [
        ["rate", "loss"],
        ["9", "-"],
        ["1", "1.5"],
    ]
    assert shown.err == "warning: rate=9: the loss is nan at step 3\n"
    rows = json.loads((tmp_path / "sweep.json").read_text())["rows"]
    assert [row["diverged"] for row in rows] == ["the loss is nan at step 3", None]
    with pytest.raises(NonFiniteLossError, match="every run of the sweep diverged"):
        run_and_print(list, run, str(tmp_path), {**options, "sweep": ("rate=9",)}, digits=1)


def test_every_recipe_is_read_before_the_first_run(tmp_path: Path) -> None:
    runs: list[int] = []

    def read(settings: list[str]) -> int:
        value = settings[0].removeprefix("steps=")
        if not value.isdecimal():
            raise ConfigError(f"steps must be a number, got {value!r}")
        return int(value)

    def run(recipe: int, seed: int, folder: Path) -> dict[str, float]:
        folder.mkdir()
        runs.append(recipe)
        return {"loss": float(seed)}

    with pytest.raises(ConfigError, match="got 'c'"):
        run_sweep(tmp_path, read_sweep(["steps=1,2,c"]), 1, read=read, run=run)
    assert not runs
    assert not list(tmp_path.iterdir())
    run_sweep(tmp_path, read_sweep(["steps=1,2,3"]), 1, read=read, run=run)
    assert runs == [1, 2, 3]


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_a_wrong_value_of_the_last_combination_ends_a_sweep_at_once(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.tsv").write_text("text\tlabel\na\tb\n")
    given = {
        "pretrain": ["tiny", "-c", str(tmp_path / "corpus")],
        "finetune": [
            *("sequence-classification", "--model", str(tmp_path / "model")),
            *("--train", str(tmp_path / "rows.tsv"), "--dev", str(tmp_path / "rows.tsv")),
        ],
    }[verb]
    # There is no corpus and no model: a first run would say so.
    output = tmp_path / "runs"
    swept = ["--sweep", "optimizer.learning_rate=0.1,0.2,fast"]
    assert main([verb, *given, "-o", str(output), *swept]) == 1
    assert "optimizer.learning_rate must be" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.slow
def test_a_sweep_of_pretraining_trains_resumes_and_prints_its_table(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"model.config.{key}={value}" for key, value in CONFIG.items()]
    settings += ["data.max_length=32", "data.held_out=0.05", "run.steps=3"]
    settings += ["batch.tokens=128", "batch.micro_tokens=128", "run.evaluate_every=3"]
    given = [part for setting in settings for part in ("--set", setting)]
    command = ["pretrain", "tiny", "-c", str(corpus), "-o", str(tmp_path / "s"), *given]
    command += ["--sweep", "objectives.unit=token,span", "--sweep", "run.steps=2,3"]
    assert main([*command, "--seeds", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["settings"]["run.steps"] for line in lines] == ["2", "3", "2", "3"]
    for line in lines:
        name = ",".join(f"{key}={value}" for key, value in line["settings"].items())
        losses = []
        for seed in (0, 1):
            log = read_log(tmp_path / "s" / name / f"seed-{seed}")
            assert len(log) == int(line["settings"]["run.steps"])
            losses.append(log[-1]["evaluation"]["mlm_loss"])
        assert losses[0] != losses[1]
        assert line["scores"]["mlm_loss"] == pytest.approx(np.mean(losses))
    # Again, every finished run says its last evaluation.
    assert main([*command, "--seeds", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].split()[:2] == ["objectives.unit", "run.steps"]
    assert len(shown.out.splitlines()) == 5
    assert f"{lines[0]['scores']['mlm_loss']:.3f} \u00b1" in shown.out
