"""Overwriting starts again where something else is, and goes on with what it began itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import OutputError, ResumeError
from encoder_engine.jobs.journal import Journal
from encoder_engine.jobs.run import RunInterrupted
from encoder_engine.jobs.workers import compute_window

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder
    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.windows import EmbeddedWindow, TokenizedWindow

NUM_ROWS = 23


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.jsonl")


def write_rows(path: Path, num_rows: int = NUM_ROWS, first: str = "text 0") -> Path:
    texts = [first, *(f"text {i}" for i in range(1, num_rows))]
    rows = [json.dumps({"id": f"row-{i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def run(tiny: Embedder, source: Path, folder: Path, **changed: Any) -> DatasetSummary:
    options: dict[str, Any] = {"id_column": "id", "shard_rows": 5, "overwrite": True, **changed}
    return tiny.encode_dataset(source, folder, **options)


def stop(tiny: Embedder, source: Path, folder: Path, row: int = 10, **changed: Any) -> None:
    """Interrupt a run at a row."""

    def interrupt(kind: Kind, half: TokenizedWindow, options: Any) -> EmbeddedWindow:
        if half.first_row >= row:
            raise KeyboardInterrupt
        return compute_window(kind, half, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("encoder_engine.jobs.workers.compute_window", interrupt)
        with pytest.raises(RunInterrupted, match="run the same command to go on"):
            run(tiny, source, folder, **changed)


def check(tiny: Embedder, folder: Path, num_rows: int = NUM_ROWS, first: str = "text 0") -> None:
    texts = [first, *(f"text {i}" for i in range(1, num_rows))]
    stored = ee.load_vectors(folder)
    np.testing.assert_array_equal(stored.vectors, tiny.encode(texts))
    assert stored.ids == [f"row-{i}" for i in range(num_rows)]
    assert not (folder / "_journal.jsonl").exists()


@pytest.mark.parametrize("over", ["nothing", "a store", "another's start"])
def test_an_overwriting_run_that_is_stopped_goes_on(
    tiny: Embedder, source: Path, tmp_path: Path, over: str
) -> None:
    folder = tmp_path / "out"
    if over == "a store":
        run(tiny, source, folder, shard_rows=4, overwrite=False)
    elif over == "another's start":
        stop(tiny, source, folder, overwrite=False)
    stop(tiny, source, folder, row=10)
    made = (folder / "part-00000.npy").stat()
    stop(tiny, source, folder, row=15)
    assert run(tiny, source, folder).resumed_rows == 15
    after = (folder / "part-00000.npy").stat()
    assert (after.st_ino, after.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    check(tiny, folder)


def test_shards_that_end_where_a_run_is_stopped_are_kept(tiny: Embedder, tmp_path: Path) -> None:
    source, folder = write_rows(tmp_path / "in.jsonl", 300), tmp_path / "out"
    run(tiny, source, folder, shard_rows=None)
    stop(tiny, source, folder, row=64, shard_rows=None)
    stop(tiny, source, folder, row=128, shard_rows=None)
    assert run(tiny, source, folder, shard_rows=None).resumed_rows >= 128
    check(tiny, folder, 300)


def test_what_is_finished_or_was_begun_otherwise_is_made_anew(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    run(tiny, source, folder)
    assert run(tiny, source, folder).resumed_rows == 0
    check(tiny, folder)
    stop(tiny, source, folder)
    assert run(tiny, source, folder, shard_rows=6).resumed_rows == 0
    check(tiny, folder)


def test_a_run_without_leave_to_overwrite_goes_on_too(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    stop(tiny, source, folder)
    stop(tiny, source, folder, row=15, overwrite=False)
    with (folder / "_journal.jsonl").open("ab") as file:
        file.write(b'{"shard": 3, "ro')  # cut short, so it is written anew
    assert run(tiny, source, folder).resumed_rows == 15
    check(tiny, folder)


@pytest.mark.parametrize("rows", ["others", "fewer"])
def test_other_rows_are_refused_once_and_then_start_again(
    tiny: Embedder, source: Path, tmp_path: Path, rows: str
) -> None:
    """Neither the rows that are kept nor the new inputs are a dead end."""
    folder = tmp_path / "out"
    for restored in (True, False):
        write_rows(source)
        stop(tiny, source, folder)
        given: dict[str, Any] = {"first": "another"} if rows == "others" else {"num_rows": 5}
        write_rows(source, **given)
        with pytest.raises(ResumeError, match="run the same command again: it starts again"):
            run(tiny, source, folder)
        if restored:
            write_rows(source)
            assert run(tiny, source, folder, overwrite=False).resumed_rows == 10
            check(tiny, folder)
        else:
            assert run(tiny, source, folder).resumed_rows == 0
            check(tiny, folder, **given)


def test_a_run_that_was_killed_before_its_journal_went_is_not_made_anew(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"

    def full(_journal: Journal) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Journal, "remove", full)
    with pytest.raises(OutputError, match="the same command goes on"):
        run(tiny, source, folder)
    monkeypatch.undo()
    assert run(tiny, source, folder).resumed_rows == NUM_ROWS
    check(tiny, folder)


def test_a_shard_that_was_changed_is_not_gone_on_with(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    stop(tiny, source, folder)
    (folder / "part-00001.npy").write_bytes(b"changed")
    with pytest.raises(OutputError, match=r"part-00001\.npy is not as it was written"):
        run(tiny, source, folder)
    (folder / "part-00001.npy").unlink()
    assert run(tiny, source, folder).resumed_rows == 5
    check(tiny, folder)
