"""The speedrun, shortened: every stage runs, and the page has the scores."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SOURCE = Path(__file__).parents[2] / "examples" / "speedrun.py"
SHORT: dict[str, Any] = {"run.steps": 4, "run.evaluate_every": 2, "run.checkpoint_every": 2}
WORDS = [
    "the",
    "a",
    "film",
    "book",
    "was",
    "is",
    "good",
    "bad",
    "long",
    "short",
    "seen",
    "read",
    "by",
    "them",
    "us",
    "today",
    "often",
    "never",
]


@pytest.fixture(scope="module")
def speedrun() -> ModuleType:
    found = importlib.util.spec_from_file_location("speedrun", SOURCE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def write_data(folder: Path) -> Path:
    draw = random.Random(1)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=12))

    texts = folder / "texts.txt"
    texts.write_text("".join(f"{sentence()}. {sentence()}.\n" for _ in range(400)))
    for part in ("cls", "sts"):
        (folder / part).mkdir()
    for name in ("sst2_train", "sst2_dev", "cola_train", "cola_dev"):
        rows = "".join(f"{sentence()}\t{row % 2}\n" for row in range(24))
        (folder / f"cls/{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    for name in ("mrpc_train", "mrpc_dev"):
        rows = "".join(f"{row % 2}\t{sentence()}\t{sentence()}\n" for row in range(24))
        (folder / f"cls/{name}.tsv").write_text(f"Quality\t#1 String\t#2 String\n{rows}")
    for name in ("stsb_train", "stsb_dev"):
        rows = "".join(f"{sentence()},{sentence()},{row % 6}\n" for row in range(24))
        (folder / f"sts/{name}.csv").write_text(rows)
    return texts


@pytest.mark.exhaustive
def test_every_stage_runs_once_and_the_page_has_the_scores(
    speedrun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = speedrun.PRESETS["small"]
    shortened = small._replace(
        vocab_size=100,
        settings=small.settings | SHORT | {"batch.tokens": 4096, "data.held_out": 0.2},
        tuning=small.tuning | {"run.epochs": 1},
    )
    monkeypatch.setitem(speedrun.PRESETS, "small", shortened)
    texts = write_data(tmp_path)
    tasks = []
    for task in speedrun.TASKS:
        folder, _, ending = ("sts", "", "csv") if task.recipe == "stsb" else ("cls", "", "tsv")
        files = (f"{folder}/{task.recipe}_{part}.{ending}" for part in ("train", "dev"))
        tasks.append(task._replace(train=next(files), dev=next(files)))
    monkeypatch.setattr(speedrun, "TASKS", tuple(tasks))
    output = tmp_path / "out"
    command = ["speedrun", str(texts), "--data", str(tmp_path), "--output", str(output)]
    monkeypatch.setattr("sys.argv", command)
    speedrun.main()
    seconds = json.loads((output / "seconds.json").read_text())
    assert list(seconds) == ["vocabulary and tokens", "pretraining", "sst2", "cola", "mrpc", "stsb"]
    page = (output / "speedrun.html").read_text()
    for task in tasks:
        report = json.loads((output / task.recipe / "report.json").read_text())
        for score in task.scores:
            assert f">{score}<" in page
            assert f">{report['scores'][score]:.1f}<" in page
    log = (output / "pretraining" / "log.jsonl").read_bytes()
    speedrun.main()
    assert (output / "pretraining" / "log.jsonl").read_bytes() == log
