"""A resumed run says how far the earlier one came and when that was saved, in every job."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest

from encoder_engine.data.hygiene import run as cleaning
from encoder_engine.records import LOGGER, note_resumed
from encoder_engine.training.loop import Loop
from tests.jobs.test_folder import truncate_to

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.data.hygiene.cleaning import CleanCounts
    from tests.cli.conftest import Run

CLOCK = r"saved (\d{4}-\d\d-\d\d )?\d\d:\d\d"
SMALL = (
    *("--set", "model.config.hidden_size=16", "--set", "model.config.num_attention_heads=2"),
    *("--set", "model.config.num_hidden_layers=1", "--set", "model.config.intermediate_size=24"),
    *("--set", "batch.tokens=256", "--set", "batch.micro_tokens=256", "--set", "data.workers=0"),
    *("--set", "run.steps=6", "--set", "run.checkpoint_every=2", "--set", "run.evaluate_every=6"),
    *("--set", "data.max_length=32", "--set", "run.precision=float32", "--set", "run.device=cpu"),
)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    lines = [f"The text of row {row} has long words and a query." for row in range(400)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def said(run: Run, pattern: str, *command: object) -> None:
    result = run(*command)
    assert result.code == 0, result.errors
    found = [line for line in result.errors.splitlines() if line.startswith("resumed from")]
    assert [bool(re.fullmatch(f"resumed from {pattern}, {CLOCK}", line)) for line in found] == [
        True
    ], result.errors


def interrupt_steps(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Stop training where step ``at`` begins."""
    original = Loop._launch

    def launch(self: Loop, batches: object, number: int, rate: float) -> object:
        if number == at:
            raise KeyboardInterrupt
        return original(self, batches, number, rate)  # type: ignore[arg-type]

    monkeypatch.setattr(Loop, "_launch", launch)


def test_pretrain_names_the_step(
    run: Run, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus"
    assert run("prepare", texts, "--vocab-size", "120", "-o", corpus, "-q").code == 0
    said(run, "400 texts", "prepare", texts, "--vocab-size", "120", "-o", corpus)
    command = ("pretrain", "tiny", "-c", corpus, "-o", tmp_path / "run", *SMALL)
    with monkeypatch.context() as patch:
        interrupt_steps(patch, 5)
        first = run(*command)
    assert (first.code, "resumed" in first.errors) == (1, False)
    said(run, "step 4 of 6", *command)
    assert "resumed" not in run(*command, "--quiet").errors


def test_finetune_names_the_step(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.csv"
    lines = [f"the row {row},{('good', 'bad')[row % 2]}" for row in range(64)]
    rows.write_text("\n".join(["text,label", *lines]) + "\n", "utf-8")
    command = (
        *("finetune", "sequence-classification", "-m", model, "--train", rows),
        *("-o", tmp_path / "run", "--set", "run.steps=4", "--set", "run.checkpoint_every=2"),
        *("--set", "run.device=cpu", "--set", "report.samples=20"),
    )
    with monkeypatch.context() as patch:
        interrupt_steps(patch, 3)
        assert run(*command).code == 1
    said(run, "step 2 of 4", *command)


def test_embed_names_the_rows(run: Run, model: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    command = ("embed", texts, "-m", model, "-o", f"{folder}/", "--shard-rows", 100)
    assert "resumed from" not in run(*command).errors
    truncate_to(folder, 3)
    said(run, "300 rows", *command)
    # Nothing is left to do, and the summary says so.
    assert "resumed from" not in run(*command).errors


def test_clean_names_the_texts(
    run: Run, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "WINDOW_ROWS", 100)
    monkeypatch.setattr(cleaning, "RECORD_SECONDS", 0.0)
    command = ("clean", texts, "-o", tmp_path / "clean.jsonl", "--near", 0)
    original = cleaning.clean_rows

    def interrupted(*arguments: object, watch: object, **more: object) -> None:
        def stop(counts: CleanCounts) -> None:
            if counts.read == 200:
                raise KeyboardInterrupt

        original(*arguments, watch=stop, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "clean_rows", interrupted)
        assert run(*command).code == 1
    said(run, "200 texts", *command)


def test_a_record_of_another_day_has_its_date(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", LOGGER.name)
    record = tmp_path / "state.json"
    record.touch()
    noon = time.mktime((2020, 2, 3, 12, 5, 0, 0, 0, -1))
    os.utime(record, (noon, noon))
    note_resumed("step 40 of 150", record)
    assert caplog.messages == ["resumed from step 40 of 150, saved 2020-02-03 12:05"]
