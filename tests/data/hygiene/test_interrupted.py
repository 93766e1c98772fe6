"""An interrupted run of cleaning goes on where it stopped, to the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.data.hygiene import run as cleaning_run
from encoder_engine.data.hygiene.cleaning import CleanCounts, Cleaner, CleanSettings
from encoder_engine.data.hygiene.languages import Language
from encoder_engine.data.hygiene.run import clean_rows
from encoder_engine.errors import LockedError, OutputError, ResumeError, RowError
from encoder_engine.files import move_into_place
from encoder_engine.inputs.records import Record
from encoder_engine.locks import FolderLock
from tests.cli.conftest import model, run
from tests.data.hygiene.cleaning_runs import FILES, NUM_ROWS, WINDOW, clean, draw_records, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run

__all__ = ["model", "run"]


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, bytes], CleanCounts]:
    """Return the files and counts of a run that is not interrupted."""
    monkeypatch.setattr(cleaning_run, "WINDOW_ROWS", WINDOW)
    monkeypatch.setattr(cleaning_run, "RECORD_SECONDS", 0.0)
    folder = tmp_path / "whole"
    folder.mkdir()
    counts = clean(folder)
    reasons = {"exact duplicate", "near duplicate", "semantic duplicate"}
    assert counts.dropped.keys() == reasons
    return read(folder), counts


def read(folder: Path) -> dict[str, bytes]:
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    return {name: (folder / name).read_bytes() for name in FILES}


def interrupt_at(num_rows: int) -> Callable[[CleanCounts], None]:
    def watch(counts: CleanCounts) -> None:
        if counts.read >= num_rows:
            raise KeyboardInterrupt

    return watch


def test_a_run_interrupted_after_each_window_ends_in_the_same_bytes(
    whole: tuple[dict[str, bytes], CleanCounts], tmp_path: Path
) -> None:
    files, counts = whole
    folder = tmp_path / "broken"
    folder.mkdir()
    seen = []
    for stop in range(WINDOW, NUM_ROWS, WINDOW):
        with pytest.raises(KeyboardInterrupt):
            clean(folder, interrupt_at(stop))
        partial = folder / "_out.jsonl.partial"
        seen.append(json.loads((partial / "progress.json").read_text())["counts"]["read"])
        # What a killed run wrote after its last record.
        for name in ("kept.jsonl", "dropped.jsonl", "memory.bin"):
            with (partial / name).open("ab") as stream:
                stream.write(b"torn")
    assert seen == list(range(WINDOW, NUM_ROWS, WINDOW))
    found = clean(folder)
    assert read(folder) == files
    assert list(found.values().items()) == list(counts.values().items())
    assert [list(x) for x in (found.dropped, found.personal)] == [
        list(x) for x in (counts.dropped, counts.personal)
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
import encoder_engine.data.hygiene.run as cleaning_run
from tests.data.hygiene.cleaning_runs import WINDOW, clean
cleaning_run.WINDOW_ROWS, cleaning_run.RECORD_SECONDS = WINDOW, 0.0
note = cleaning_run._note
def note_early(job, counts, *given):
    # Between the lines of a window and their record.
    if counts.read >= 3 * WINDOW:
        os.kill(os.getpid(), signal.SIGKILL)
    return note(job, counts, *given)
cleaning_run._note = note_early
clean(Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_run_ends_in_the_same_bytes(
    whole: tuple[dict[str, bytes], CleanCounts], tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", KILLED, str(folder)]
    killed = subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": "."}, check=False)
    assert killed.returncode == -signal.SIGKILL
    progress = json.loads((folder / "_out.jsonl.partial" / "progress.json").read_text())
    assert progress["counts"]["read"] == 2 * WINDOW
    found = clean(folder)
    assert read(folder) == whole[0]
    assert list(found.values().items()) == list(whole[1].values().items())


@pytest.mark.parametrize("step", ["second file", "manifest", "folder"])
def test_a_run_stopped_while_it_publishes_ends_in_the_same_bytes(
    step: str,
    whole: tuple[dict[str, bytes], CleanCounts],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    moved: list[Path] = []

    def stop(*_given: object, **_options: object) -> None:
        raise KeyboardInterrupt

    def move_first(source: Path, target: Path, *, overwrite: bool) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(target)
        move_into_place(source, target, overwrite=overwrite)

    with monkeypatch.context() as patched:
        if step == "second file":
            patched.setattr(cleaning_run, "move_into_place", move_first)
        elif step == "folder":
            patched.setattr(shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            clean(folder, finish=stop if step == "manifest" else None)
    assert (folder / "out.jsonl").exists()
    assert (folder / "_out.jsonl.partial").is_dir()
    found = clean(folder)
    assert read(folder) == whole[0]
    assert list(found.values().items()) == list(whole[1].values().items())


@pytest.mark.usefixtures("whole")
def test_an_interrupted_run_goes_on_with_the_same_settings_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        clean(tmp_path, interrupt_at(WINDOW))
    other: dict[str, Any] = {"begun": {"inputs": ["y"], "settings": {"near": 0.6}}}
    with pytest.raises(ResumeError, match=r"inputs are others.*near was 0.5, is 0.6"):
        clean(tmp_path, **other)
    with FolderLock(tmp_path / "_out.jsonl.partial"), pytest.raises(LockedError):
        clean(tmp_path)
    with (tmp_path / "_out.jsonl.partial" / "memory.bin").open("r+b") as stream:
        stream.truncate(5)
    with pytest.raises(OutputError, match="it was damaged; remove"):
        clean(tmp_path)
    assert clean(tmp_path, **other, overwrite=True).read == NUM_ROWS
    with pytest.raises(OutputError, match="exists"):
        clean(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "_out.jsonl.partial").mkdir()
    (tmp_path / "mine" / "_out.jsonl.partial" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="no cleaning was started in it"):
        clean(tmp_path / "mine")


@pytest.mark.usefixtures("whole")
def test_other_rows_than_those_that_were_read_are_refused(tmp_path: Path) -> None:
    # An address or a pipe has no time of change: rows of two inputs were mixed in silence.
    with pytest.raises(KeyboardInterrupt):
        clean(tmp_path, interrupt_at(2 * WINDOW))
    records = draw_records()
    for other in (records[:WINDOW], [Record({"text": "x", "number": 0}), *records[1:]]):
        with pytest.raises(ResumeError, match="its first 128 rows are others now; remove"):
            clean(tmp_path, records=other)
    more = [*records[: 2 * WINDOW], Record({"text": "another end", "number": 0})]
    assert clean(tmp_path, records=more).read == len(more)


@pytest.mark.parametrize("exact", [True, False])
def test_a_window_of_which_no_row_is_kept_ends_no_run(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A window that added no digest could not be remembered: no run with --keep-exact ended.
    monkeypatch.setattr(cleaning_run, "WINDOW_ROWS", 2)
    monkeypatch.setattr(cleaning_run, "RECORD_SECONDS", 0.0)
    texts = ["a cat sat on the mat", "the dog ran", "a cat sat on the mat", "the dog ran", "a rug"]
    records = [Record({"text": text}, row=row) for row, text in enumerate(texts)]
    settings = CleanSettings(exact=exact, near=0.8)
    with pytest.raises(KeyboardInterrupt):
        clean_rows(
            records,
            Cleaner(settings),
            job(tmp_path),
            finish=lambda _: None,
            watch=interrupt_at(4),
        )
    cleaner = Cleaner(settings)
    clean_rows(records, cleaner, job(tmp_path), finish=lambda _: None)
    reason = "exact duplicate" if exact else "near duplicate"
    assert (cleaner.counts.kept, cleaner.counts.dropped) == (3, {reason: 2})


def test_a_bad_row_leaves_nothing_to_go_on_with(tmp_path: Path) -> None:
    records = [Record({"text": "a text"}), Record({"text": 3}, file="rows.jsonl", number=2)]
    with pytest.raises(RowError, match="line 2: text must be a text"):
        clean_rows(records, Cleaner(CleanSettings()), job(tmp_path), finish=lambda _: None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("values", [{"text": ["a@example.org"]}, {"a@example.org": "a text"}])
def test_a_bad_row_is_refused_without_its_text(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RowError, match=r"^row 0: ") as caught:
        clean_rows([Record(values)], Cleaner(CleanSettings()), job(tmp_path), finish=lambda _: None)
    assert "example" not in str(caught.value)


def test_labels_of_languages_replace_no_column(tmp_path: Path) -> None:
    # The language that a file stated was overwritten by a guess.
    def labelled(column: str) -> None:
        cleaner = Cleaner(CleanSettings(), label=lambda _: Language("en", 1.0))
        given = job(tmp_path, language_column=column)
        clean_rows([Record({"text": "x", "language": "de"})], cleaner, given, finish=lambda _: None)

    with pytest.raises(RowError, match=r"row 0: the label .* own column 'language'; name"):
        labelled("language")
    assert not list(tmp_path.iterdir())
    labelled("guess")
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row == {"text": "x", "language": "de", "guess": "en"}


@pytest.mark.slow
def test_the_verb_goes_on_and_refuses_changed_inputs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning_run, "WINDOW_ROWS", WINDOW)
    monkeypatch.setattr(cleaning_run, "RECORD_SECONDS", 0.0)
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(record.values) + "\n" for record in draw_records()))
    command = ("clean", source, "-o", tmp_path / "out.jsonl")
    assert run(*command[:2], "-o", tmp_path / "whole.jsonl").code == 0
    clean_once = Cleaner.clean

    def stop(self: Cleaner, texts: list[str]) -> Any:
        if self.counts.read >= 2 * WINDOW:
            raise KeyboardInterrupt
        return clean_once(self, texts)

    monkeypatch.setattr(Cleaner, "clean", stop)
    stopped = run(*command)
    assert stopped.code == 1
    assert "stopped; the same command goes on" in stopped.errors
    monkeypatch.setattr(Cleaner, "clean", clean_once)
    assert "settings: near was 0.8, is 0.5" in run(*command, "--near", "0.5").errors
    assert run(*command).code == 0
    for ending in ("jsonl", "jsonl.manifest.json"):
        found = [(tmp_path / f"{name}.{ending}").read_bytes() for name in ("out", "whole")]
        assert found[0] == found[1]
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.slow
def test_the_verb_goes_on_with_all_settings_of_its_model_alone(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The record had the weights' hash alone: another limit or pooling makes other vectors.
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(9)))
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    command = ("clean", source, "-o", tmp_path / "out.jsonl", "--semantic", copy)

    def stop(*_given: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Cleaner, "clean", stop)
        assert run(*command).code == 1
    limits = copy / "sentence_bert_config.json"
    before = limits.read_text()
    limits.write_text(json.dumps(json.loads(before) | {"max_seq_length": 7}))
    assert "the model's max_seq_length was" in run(*command).errors
    limits.write_text(before)
    found = run(*command)
    assert found.code == 0, found.errors
