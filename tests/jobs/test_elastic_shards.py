"""Shards that end by the clock or where a run is stopped: nothing done is lost, rows in order."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import OutputError, ResumeError, RowError
from encoder_engine.jobs import folder as folders
from encoder_engine.jobs import windows
from encoder_engine.jobs.run import RunInterrupted
from encoder_engine.jobs.workers import compute_window
from tests.embedding.kill_long import contents

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.windows import EmbeddedWindow, TokenizedWindow

NUM_ROWS = 700
FORMATS = ["npy", "parquet", "arrow"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "in.jsonl", NUM_ROWS)


def write_rows(path: Path, num_rows: int) -> Path:
    rows = [json.dumps({"id": f"row-{i}", "text": f"text {i}"}) for i in range(num_rows)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def interrupt_at(monkeypatch: pytest.MonkeyPatch, row: int, error: type[BaseException]) -> None:
    def stop(kind: Kind, half: TokenizedWindow, options: Any) -> EmbeddedWindow:
        if half.first_row >= row:
            raise error
        return compute_window(kind, half, options)

    monkeypatch.setattr("encoder_engine.jobs.workers.compute_window", stop)


def check(tiny: Embedder, folder: Path, num_rows: int = NUM_ROWS) -> list[int]:
    """Compare vectors and ids with what they are; return the rows of the shards."""
    stored = ee.load_vectors(folder)
    np.testing.assert_array_equal(
        stored.vectors, tiny.encode([f"text {i}" for i in range(num_rows)])
    )
    assert stored.ids == [f"row-{i}" for i in range(num_rows)]
    assert stored.manifest is not None
    return [shard["rows"] for shard in stored.manifest["shards"]]


@pytest.mark.parametrize("shard_format", FORMATS)
def test_a_stopped_run_keeps_what_is_done_and_goes_on_behind_it(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_format: Any
) -> None:
    if shard_format != "npy":
        pytest.importorskip("pyarrow")
    options = {"id_column": "id", "shard_format": shard_format}
    interrupt_at(monkeypatch, 192, KeyboardInterrupt)
    with pytest.raises(RunInterrupted, match=r"rows are kept in .* run the same command") as told:
        tiny.encode_dataset(source, tmp_path / "out", **options)
    kept = int(str(told.value).split()[1])
    assert kept >= 192
    assert not list((tmp_path / "out").glob("*.partial"))
    monkeypatch.undo()
    summary = tiny.encode_dataset(source, tmp_path / "out", **options)
    assert summary.resumed_rows == kept
    assert check(tiny, tmp_path / "out") == [kept, NUM_ROWS - kept]
    before = contents(tmp_path / "out")
    # A shard that is lost is made again, to the same bytes, though it was cut by the clock.
    for number in range(2):
        (tmp_path / "out" / f"part-{number:05d}.{shard_format}").unlink()
    assert tiny.encode_dataset(source, tmp_path / "out", **options).resumed_rows == 0
    assert contents(tmp_path / "out") == before


def test_shards_end_by_the_clock(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SHARD_SECONDS", 0.0)
    tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    sizes = check(tiny, tmp_path / "out")
    assert len(sizes) > 3
    assert sizes[0] == 64
    monkeypatch.undo()
    # Anything may be missing: the records tell where each shard begins.
    before = contents(tmp_path / "out")
    (tmp_path / "out" / "part-00001.npy").unlink()
    summary = tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    assert summary.resumed_rows == NUM_ROWS - sizes[1]
    assert contents(tmp_path / "out") == before


def test_shards_of_many_rows_end_at_the_limit(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "DEFAULT_SHARD_ROWS", 300)
    monkeypatch.setattr("encoder_engine.jobs.run.DEFAULT_SHARD_ROWS", 300)
    tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    assert check(tiny, tmp_path / "out") == [300, 300, 100]


def test_a_bad_row_keeps_the_rows_before_it(tiny: Embedder, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", 300)
    whole = source.read_text("utf-8")
    source.write_text(whole + '{"id": "bad"}\n', encoding="utf-8")
    with pytest.raises(RowError, match=r"on_error='skip'; \d+ rows are kept in .*out") as caught:
        tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    assert caught.value.number == 301
    source.write_text(whole, encoding="utf-8")
    assert tiny.encode_dataset(source, tmp_path / "out", id_column="id").resumed_rows >= 192
    check(tiny, tmp_path / "out", 300)


def test_shards_of_a_size_asked_for_are_whole_or_not_there(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(monkeypatch, 192, KeyboardInterrupt)
    with pytest.raises(RunInterrupted, match="00 rows are kept"):
        tiny.encode_dataset(source, tmp_path / "out", id_column="id", shard_rows=100)
    for path in (tmp_path / "out").glob("part*.npy"):
        assert len(np.load(path)) == 100


def test_a_full_disk_keeps_no_half_shard(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_at(monkeypatch, 192, OutputError)
    with pytest.raises(OutputError):
        tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    assert not list((tmp_path / "out").glob("part*"))


def let_bits_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Compute as GPUs do, and in bfloat16; say that each window took so long."""

    def encode(kind: Kind, half: TokenizedWindow, options: Any) -> EmbeddedWindow:
        embedded = compute_window(kind, half, options)
        vectors = embedded.vectors + np.float32(len(embedded.vectors)) / 1e6
        return dataclasses.replace(embedded, vectors=vectors, encode_seconds=seconds)

    monkeypatch.setattr("encoder_engine.jobs.workers.compute_window", encode)


@pytest.mark.parametrize("shard_format", FORMATS)
def test_the_clock_does_not_show_in_shards_of_a_size(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_format: Any
) -> None:
    if shard_format != "npy":
        pytest.importorskip("pyarrow")
    options = {"id_column": "id", "shard_format": shard_format, "shard_rows": 300}
    for name, seconds in (("slow", 99.0), ("fast", 0.0)):
        let_bits_depend_on_the_batch(monkeypatch, seconds)
        tiny.encode_dataset(source, tmp_path / name, **options)
        monkeypatch.undo()
    before = contents(tmp_path / "fast")
    assert contents(tmp_path / "slow") == before
    (tmp_path / "fast" / f"part-00001.{shard_format}").unlink()
    let_bits_depend_on_the_batch(monkeypatch, 0.0)
    assert tiny.encode_dataset(source, tmp_path / "fast", **options).resumed_rows == 400
    assert contents(tmp_path / "fast") == before


def test_a_shard_that_comes_out_otherwise_is_refused_with_the_reason(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_bits_depend_on_the_batch(monkeypatch, 0.0)
    tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    former = (tmp_path / "out" / "part-00000.npy").rename(tmp_path / "former.npy")
    monkeypatch.undo()
    words = "differs from the recorded one.*depend on the batch or the machine; copy the former"
    with pytest.raises(ResumeError, match=words):
        tiny.encode_dataset(source, tmp_path / "out", id_column="id")
    former.replace(tmp_path / "out" / "part-00000.npy")
    assert tiny.encode_dataset(source, tmp_path / "out", id_column="id").resumed_rows == NUM_ROWS


def test_windows_grow_while_they_are_quick_and_shrink_where_they_are_slow() -> None:
    size = windows.WindowSize(timed=True)
    sizes = [size.num_texts]
    for seconds in (0.1, 0.1, 3.0, 9.0, 9.0, 9.0, 9.0, 9.0):
        size.observe(size.num_texts, seconds)
        sizes.append(size.num_texts)
    assert sizes == [64, 128, 256, 256, 128, 64, 32, 16, 16]
    for _ in range(20):
        size.observe(size.num_texts, 0.0)
    assert size.num_texts == 4096
    fixed = windows.WindowSize(timed=False)
    fixed.observe(4096, 99.0)
    assert fixed.num_texts == 4096


def test_a_finished_store_tells_its_own_counts_when_nothing_is_left_to_do(
    tiny: Embedder, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("long " * 40 + "\na text\n", encoding="utf-8")
    assert tiny.encode_dataset(source, tmp_path / "out").truncated_rows == 1
    summary = tiny.encode_dataset(source, tmp_path / "out")
    assert (summary.rows, summary.resumed_rows, summary.truncated_rows) == (2, 2, 1)
