"""Folders of shards: whole, resumable, the same bytes whatever happened, and never mixed up."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.embedding import Embedder
from encoder_engine.errors import InputError, LockedError, OutputError, ResumeError, RowError
from encoder_engine.jobs.journal import Journal
from encoder_engine.jobs.plan import plan_changes
from encoder_engine.jobs.workers import compute_window
from encoder_engine.models import Encoder
from encoder_engine.vectors.manifest import ShardRecord
from tests import ROOT
from tests.embedding.kill_long import contents, fill_a_file_system

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.jobs.run import DatasetSummary
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.windows import EmbeddedWindow, TokenizedWindow

TEXTS = [f"text {row}" for row in range(23)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.jsonl", TEXTS)


def write_rows(path: Path, texts: list[Any]) -> Path:
    rows = [json.dumps({"id": f"row-{i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def run(tiny: Embedder, source: Path, folder: Path, **changed: Any) -> DatasetSummary:
    options: dict[str, Any] = {"id_column": "id", "shard_rows": 5, **changed}
    return tiny.encode_dataset(source, folder, **options)


def truncate_to(folder: Path, num_shards: int) -> None:
    """Bring a finished folder back to where a kill after so many shards would have left it."""
    manifest = json.loads((folder / "_manifest.json").read_text("utf-8"))
    journal = Journal(folder)
    journal.begin(manifest["plan"])
    for shard in manifest["shards"]:
        if shard["shard"] < num_shards:
            journal.add(ShardRecord(**shard))
        else:
            for name in shard["files"]:
                (folder / name).unlink()
    (folder / "_manifest.json").unlink()


def test_shards_hold_all_rows_in_order(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    summary = run(tiny, source, tmp_path / "out")
    assert (summary.rows, summary.resumed_rows, summary.dimension) == (23, 0, 16)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    parts = [f"part-{n:05d}.{end}" for n in range(5) for end in ("ids.txt", "npy")]
    digests = [f"_part-{n:05d}.rows.npy" for n in range(5)]
    assert names == ["_manifest.json", *digests, *parts]
    vectors = [np.load(tmp_path / "out" / f"part-{n:05d}.npy") for n in range(5)]
    assert [len(part) for part in vectors] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.concatenate(vectors), tiny.encode(TEXTS))
    ids = (tmp_path / "out" / "part-00004.ids.txt").read_text("utf-8").split()
    assert ids == ["row-20", "row-21", "row-22"]


def test_files_of_others_stay_where_a_folder_is_refused_or_resumed(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "out" / "download.partial" / "precious.bin"
    precious.parent.mkdir(parents=True)
    precious.write_bytes(b"precious")
    with pytest.raises(OutputError, match=r"holds other files \(download.partial"):
        run(tiny, source, tmp_path / "out")
    assert precious.read_bytes() == b"precious"
    run(tiny, source, tmp_path / "ours")
    moved = precious.parent.rename(tmp_path / "ours" / "download.partial")
    run(tiny, source, tmp_path / "ours")
    assert (moved / "precious.bin").read_bytes() == b"precious"


def test_a_folder_is_taken_that_was_left_before_its_journal(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_journal.jsonl.0123abcd.partial").touch()
    (tmp_path / "out" / "part-00000.lance.0123abcd.scratch.partial").mkdir()
    run(tiny, source, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.partial"))


def test_the_manifest_tells_everything_and_no_time_of_day(
    tiny_by_engine: Embedder, source: Path, tmp_path: Path
) -> None:
    run(tiny_by_engine, source, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text("utf-8"))
    assert (manifest["rows"], manifest["skipped_rows"]) == (23, 0)
    assert manifest["inputs"] == [str(source)]
    assert len(manifest["plan"]["model"]["fingerprint"]) == 64
    assert len(manifest["plan"]["tokenizer"]["fingerprint"]) == 64
    assert manifest["plan"]["options"]["shard_rows"] == 5
    engine = manifest["plan"]["model"]["engine"]
    libraries = {"torch"} if engine == "torch" else set()
    assert engine == tiny_by_engine.engine.name
    assert set(manifest["plan"]["versions"]) == {"encoder-engine", "numpy", *libraries}
    assert [shard["rows"] for shard in manifest["shards"]] == [5, 5, 5, 5, 3]
    run(tiny_by_engine, source, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


@pytest.mark.parametrize("shard_format", ["npy", "parquet", "arrow", "lance"])
@pytest.mark.parametrize("num_shards", [0, 1, 4, 5])
def test_a_run_goes_on_to_the_same_bytes(
    tiny: Embedder, source: Path, tmp_path: Path, shard_format: str, num_shards: int
) -> None:
    if shard_format != "npy":
        pytest.importorskip("pyarrow")
    if shard_format == "lance":
        pytest.importorskip(
            "lance", reason="pylance is not installed; it comes with the extra lance"
        )
    folder = tmp_path / "out"
    run(tiny, source, folder, shard_format=shard_format)
    truth = contents(folder)
    truncate_to(folder, num_shards)
    (folder / "part-00001.npy.12345678.partial").touch()
    with (folder / "_journal.jsonl").open("ab") as file:
        file.write(b'{"shard": 4, "ro')
    summary = run(tiny, source, folder, shard_format=shard_format)
    assert summary.resumed_rows == min(5 * num_shards, 23)
    assert contents(folder) == truth


def test_a_finished_folder_is_left_as_it_is(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    run(tiny, source, tmp_path / "out")
    manifest = tmp_path / "out" / "_manifest.json"
    before = manifest.stat().st_mtime_ns
    assert run(tiny, source, tmp_path / "out").resumed_rows == 23
    assert manifest.stat().st_mtime_ns == before


def test_a_missing_shard_is_made_again_and_a_changed_one_is_not(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    run(tiny, source, folder)
    truth = contents(folder)
    (folder / "part-00002.npy").unlink()
    assert run(tiny, source, folder).resumed_rows == 18
    assert contents(folder) == truth
    (folder / "part-00002.ids.txt").write_text("another\n", encoding="utf-8")
    with pytest.raises(OutputError, match=r"part-00002\.ids\.txt is not as it was written"):
        run(tiny, source, folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard_rows": 6}, "shard_rows= was 5, is 6"),
        ({"prompt": "query: "}, "prompt= was '', is 'query: '"),
        ({"truncate_dim": 8}, "truncate_dim= was 16, is 8"),
        ({"id_column": None}, "id_column= was 'id', is None"),
        ({"shard_format": "arrow"}, "shard_format= was"),
    ],
)
def test_other_options_are_refused_with_what_changed(
    tiny: Embedder, source: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    run(tiny, source, tmp_path / "out")
    truncate_to(tmp_path / "out", 2)
    before = contents(tmp_path / "out")
    with pytest.raises(ResumeError, match="started with other settings") as caught:
        run(tiny, source, tmp_path / "out", **options)
    assert words in str(caught.value)
    assert contents(tmp_path / "out") == before


def test_a_run_that_ended_at_a_bad_row_goes_on_without_it(tiny: Embedder, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [*TEXTS[:12], None, *TEXTS[12:]])
    with pytest.raises(RowError, match="line 13"):
        run(tiny, source, tmp_path / "out")
    summary = run(tiny, source, tmp_path / "out", on_error="skip")
    assert (summary.rows, summary.resumed_rows, summary.skipped_rows) == (23, 10, 1)
    run(tiny, source, tmp_path / "whole", on_error="skip")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_model_is_refused(
    tiny: Embedder, tiny_directory: Path, source: Path, tmp_path: Path
) -> None:
    import torch

    load = partial(Embedder.from_pretrained, tiny_directory, device="cpu", engine="torch")
    run(load(), source, tmp_path / "out")
    truncate_to(tmp_path / "out", 2)
    with pytest.raises(ResumeError, match=r"engine= was 'torch', is 'compiled'"):
        run(tiny, source, tmp_path / "out")
    other = load()
    assert isinstance(other.encoder, Encoder)
    other.max_seq_length = 9
    with pytest.raises(ResumeError, match=r"max_seq_length= was 16, is 9"):
        run(other, source, tmp_path / "out")
    other.max_seq_length = 16
    with torch.no_grad():
        other.encoder.embedding.tokens.weight[5, 0] += 1
    with pytest.raises(ResumeError) as caught:
        run(other, source, tmp_path / "out")
    assert [change.split()[0] for change in caught.value.changes] == ["another"]


def without_engine(folder: Path) -> None:
    """Rewrite a finished run's plan as a version without engines wrote it."""
    import torch

    path = folder / "_manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    del manifest["plan"]["model"]["engine"]
    manifest["plan"]["versions"]["torch"] = str(torch.__version__)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def test_other_rows_are_refused_where_they_were_used_already(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    run(tiny, source, folder)
    truncate_to(folder, 2)
    before = contents(folder)
    write_rows(source, ["another", *TEXTS[1:]])
    with pytest.raises(ResumeError, match=r"inputs changed: rows 1 to 5 .* part-00000"):
        run(tiny, source, folder)
    write_rows(source, TEXTS[:7])
    with pytest.raises(ResumeError, match="rows 6 to 10"):
        run(tiny, source, folder)
    write_rows(source, TEXTS[:5])
    with pytest.raises(ResumeError, match="end after 5 rows"):
        run(tiny, source, folder)
    assert contents(folder) == before
    # Rows that nobody has read yet may be others; touched files with the same rows are the same.
    write_rows(source, [*TEXTS[:10], "new", "rows"])
    assert run(tiny, source, folder).rows == 12


@pytest.mark.parametrize("num_rows", [20, 23])
def test_a_finished_folder_takes_no_more_rows(
    tiny: Embedder, tmp_path: Path, num_rows: int
) -> None:
    source = write_rows(tmp_path / "in.jsonl", TEXTS[:num_rows])
    run(tiny, source, tmp_path / "out")
    write_rows(source, [*TEXTS[:num_rows], "one more"])
    with pytest.raises(ResumeError, match=r"more rows|inputs changed"):
        run(tiny, source, tmp_path / "out")
    assert run(tiny, source, tmp_path / "out", overwrite=True).rows == num_rows + 1
    write_rows(source, TEXTS[:3])
    run(tiny, source, tmp_path / "out", overwrite=True)
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_a_folder_with_other_files_is_left_alone(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(OutputError, match="precious"):
        run(tiny, source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["precious"]


@pytest.mark.parametrize("name", ["_journal.jsonl", "_manifest.json"])
def test_a_damaged_record_is_refused(
    tiny: Embedder, source: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('{"plan": {}}\n{"shard": 1}\n', encoding="utf-8")
    with pytest.raises(OutputError, match="damaged"):
        run(tiny, source, tmp_path / "out")


def test_a_second_run_is_refused_and_a_stale_lock_is_taken_over(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with (folder / ".encoder-engine.lock").open("w+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getppid()}\n")
        file.flush()
        with pytest.raises(LockedError, match=f"process {os.getppid()}"):
            run(tiny, source, folder)
    # Its holder is gone, the file is not: as after a kill.
    assert run(tiny, source, folder).rows == 23
    assert not (folder / ".encoder-engine.lock").exists()


def test_an_interrupt_leaves_whole_shards_only(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    run(tiny, source, tmp_path / "whole")

    def interrupt(kind: Kind, half: TokenizedWindow, options: Any) -> EmbeddedWindow:
        if half.first_row == 10:
            raise KeyboardInterrupt
        return compute_window(kind, half, options)

    monkeypatch.setattr("encoder_engine.jobs.workers.compute_window", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, source, folder)
    names = sorted(path.name for path in folder.glob("part-*.npy"))
    assert names == ["part-00000.npy", "part-00001.npy"]
    assert not (folder / "_manifest.json").exists()
    monkeypatch.undo()
    assert run(tiny, source, folder).resumed_rows == 10
    assert contents(folder) == contents(tmp_path / "whole")


def test_a_journal_on_a_full_disk_is_an_output_error(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_journal: Journal, _record: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "add", full)
    with pytest.raises(OutputError, match=r"No space left.*the same command goes on"):
        run(tiny, source, tmp_path / "out")
    monkeypatch.undo()
    assert run(tiny, source, tmp_path / "out").rows == 23


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    ["--kills 10 --full 4 --rows 300", "--kills 2 --full 2 --rows 150 --elastic"],
    ids=["shards of a size", "shards by the clock"],
)
def test_no_kill_and_no_full_disk_changes_what_is_written(options: str) -> None:
    command = ["-m", "tests.embedding.kill_long", *options.split(), "--format", "npy"]
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["random_kills"] >= int(options.split()[1])
    assert found["kills_before_a_change"] > 30
    assert found["kills_over_a_file"] > 20
    assert found["full_disks"] > 0
    # None: no file system may be mounted here.
    assert found["full_file_systems"] is None or found["full_file_systems"] > 0


def test_changes_are_listed_by_name() -> None:
    model = {"model": {"engine": "torch"}}
    before = {**model, "a": {"b": 1, "c": [1]}, "d": None}
    assert plan_changes(before, before) == []
    now = {**model, "a": {"b": 1, "c": [2]}, "e": 3}
    assert plan_changes(before, now) == [
        "a.c was [1], is [2]",
        "e was None, is 3",
    ]


@pytest.mark.parametrize(
    "options",
    [{"shard_rows": 0}, {"shard_rows": True}, {"workers": 1.5}, {"on_error": "no"}],
)
def test_options_that_make_no_sense_are_refused(
    tiny: Embedder, source: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        run(tiny, source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_without_mount_no_file_system_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    runs: Any = None  # which are not asked for anything
    assert fill_a_file_system(runs, 1, 0) == "no program mount is here"
