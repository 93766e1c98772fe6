"""A run's folder: one run at a time in it, of one recipe, and its checkpoints are worth keeping."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from encoder_engine.errors import (
    CheckpointError,
    ConfigError,
    CorruptCheckpointWarning,
    LockedError,
    OutputError,
    ResumeError,
)
from encoder_engine.files import CHECKSUMS, write_checksums
from encoder_engine.locks import FolderLock
from encoder_engine.training import Trainer
from encoder_engine.training.log import read_log
from tests.training.runs import draw_corpus, run, small_recipe


def test_a_second_run_in_a_folder_is_refused(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(corpus, folder, stop_at=5)
    log = (folder / "log.jsonl").read_bytes()
    with FolderLock(folder), pytest.raises(LockedError, match="written by another run"):
        run(corpus, folder)
    assert (folder / "log.jsonl").read_bytes() == log
    run(corpus, folder)
    assert not (folder / ".lock").exists()


def test_a_wrong_first_call_leaves_the_folder_to_the_mended_one(
    corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="the model takes 32"):
        run(corpus, tmp_path / "run", "data.max_length=64")
    run(corpus, tmp_path / "run", "run.steps=2")


def test_another_recipe_is_refused_but_what_changes_nothing_may_change(
    corpus: Path, tmp_path: Path
) -> None:
    run(corpus, tmp_path / "a", stop_at=5)
    with pytest.raises(ResumeError, match=r"optimizer\.learning_rate was 0\.01, is 0\.5"):
        run(corpus, tmp_path / "a", "optimizer.learning_rate=0.5")
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    changes = ["run.checkpoint_every=3", "run.keep_last=1", "run.keep_every=6", "data.workers=0"]
    run(moved, tmp_path / "a", *changes)
    kept = sorted(path.name for path in (tmp_path / "a/checkpoints").iterdir())
    assert kept == ["step-00000006", "step-00000012"]


def test_a_folder_with_nothing_to_lose_is_anothers(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(corpus, folder, stop_at=3)
    assert (folder / "log.jsonl").stat().st_size > 0
    run(corpus, folder, "optimizer.learning_rate=0.05", "run.steps=2")
    assert [record["step"] for record in read_log(folder)] == [1, 2]
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(ResumeError, match=r"optimizer\.learning_rate was 0\.05, is 0\.01"):
        run(corpus, folder, "run.steps=2")


def test_blocks_may_be_recomputed_from_some_step_on(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "whole")
    run(corpus, tmp_path / "broken", stop_at=5)
    run(corpus, tmp_path / "broken", "run.recompute=true")
    found, expected = (read_log(tmp_path / name) for name in ("broken", "whole"))
    assert found == expected


@pytest.mark.parametrize("name", ["recipe.json", "corpus.sha256"])
def test_a_folder_that_does_not_say_what_it_is_of_is_refused(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    run(corpus, tmp_path / "run", stop_at=5)
    (tmp_path / "run" / name).unlink()
    with pytest.raises(ResumeError, match=f"no {name}, so their recipe and corpus are unknown"):
        run(corpus, tmp_path / "run")


def test_another_corpus_is_refused_wherever_it_lies(corpus: Path, tmp_path: Path) -> None:
    here = tmp_path / "corpus"
    shutil.copytree(corpus, here)
    run(here, tmp_path / "run", stop_at=5)
    shutil.rmtree(here)
    draw_corpus(here, seed=7)
    with pytest.raises(ResumeError, match="holds another corpus"):
        run(here, tmp_path / "run")


def test_a_finished_run_says_again_what_came_of_it(corpus: Path, tmp_path: Path) -> None:
    recipe = small_recipe(corpus, "run.steps=3")
    scores = Trainer(recipe, tmp_path / "run").run()
    assert scores
    assert Trainer(recipe, tmp_path / "run").run() == scores


def test_a_log_that_was_cut_is_not_filled_with_zeros(corpus: Path, tmp_path: Path) -> None:
    """Training went on to the end, where the log could not be read."""
    run(corpus, tmp_path / "run", stop_at=5)
    path = tmp_path / "run" / "log.jsonl"
    log = path.read_bytes()
    for cut in (b"", log[:10]):
        path.write_bytes(cut)
        with pytest.raises(ResumeError, match=rf"log\.jsonl has {len(cut)} bytes, and had \d+ at"):
            run(corpus, tmp_path / "run")
        assert path.read_bytes() == cut
    path.write_bytes(log)
    run(corpus, tmp_path / "run")
    run(corpus, tmp_path / "whole")
    assert path.read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()


def test_a_damaged_checkpoint_is_put_aside_and_takes_no_good_ones_place(
    corpus: Path, tmp_path: Path
) -> None:
    run(corpus, tmp_path / "run", stop_at=11)
    checkpoints = tmp_path / "run/checkpoints"
    (checkpoints / "step-00000008" / "state.json").write_text("{}", "utf-8")
    with pytest.warns(CorruptCheckpointWarning, match=r"it is now step-00000008\.damaged"):
        run(corpus, tmp_path / "run", "run.keep_last=1", "run.checkpoint_every=3", stop_at=7)
    kept = sorted(path.name for path in checkpoints.iterdir())
    assert kept == ["step-00000006", "step-00000008.damaged"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_log_that_a_full_disk_does_not_take_is_closed(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/speed.jsonl").symlink_to("/dev/full")
    trainer = Trainer(small_recipe(corpus), tmp_path / "run")
    with pytest.raises(OutputError, match=r"speed\.jsonl could not be written: No space left"):
        trainer.run()
    opened = [str(link.resolve()) for link in Path("/dev/fd").iterdir()]
    written = (str(tmp_path), "/dev/full")
    assert not [path for path in opened if path.startswith(written)]


@pytest.mark.filterwarnings("ignore:.*NoCloseWriter:pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_and_a_strange_checkpoint_are_said_so(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(corpus, folder, stop_at=5)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"step-00000008 could not be written"):
            run(corpus, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"corpus\.sha256 could not be written"):
            run(corpus, tmp_path / "other")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    last = folder / "checkpoints/step-00000004"
    assert [path.name for path in folder.glob("checkpoints/step-????????")] == [last.name]
    (data,) = last.glob("*.distcp")
    data.write_bytes(data.read_bytes()[:1000])
    write_checksums(last, [path.name for path in last.iterdir() if path.name != CHECKSUMS])
    with pytest.raises(CheckpointError, match="step-00000004 could not be read"):
        run(corpus, folder)
