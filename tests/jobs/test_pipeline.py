"""Stages that overlap: everything in its order, errors in their place, and no thread left over."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import OutputError, RowError
from encoder_engine.inputs.readers import open_inputs
from encoder_engine.inputs.rows import Row
from encoder_engine.jobs.pipeline import BackgroundWriter, ahead
from encoder_engine.jobs.windows import shard_windows
from encoder_engine.jobs.workers import LocalEmbedder
from encoder_engine.vectors.store import VectorStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.embedding import Embedder


def test_items_come_in_order_and_are_drawn_ahead_but_not_further() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(9):
            drawn.append(number)
            yield number

    taken = []
    for number in ahead(items(), 2):
        deadline = time.monotonic() + 60
        while len(drawn) < min(number + 3, 9):
            assert time.monotonic() < deadline, drawn
            time.sleep(0.001)
        assert len(drawn) <= number + 3
        taken.append(number)
    assert taken == list(range(9))


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("the third")

    taken: list[int] = []
    with pytest.raises(KeyError, match="the third"):
        taken.extend(ahead(items(), 5))
    assert taken == [1, 2]


def test_closing_ends_the_thread() -> None:
    before = threading.active_count()
    drawing = ahead(iter(range(10**9)))
    assert next(drawing) == 0
    drawing.close()
    assert threading.active_count() == before


def test_calls_behind_keep_their_order_and_raise_with_the_next() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.001 * (9 - number))
        if number == 5:
            raise OutputError("the disk is full")
        done.append(number)

    def work_through() -> None:
        with BackgroundWriter() as writer:
            for number in range(9):
                writer(work, number)

    with pytest.raises(OutputError, match="full"):
        work_through()
    assert done == [0, 1, 2, 3, 4]
    with BackgroundWriter() as writer:
        writer(work, 7)
        writer.wait()
        assert done[-1] == 7
        writer(work, 8)
    assert done[-1] == 8


def test_leaving_raises_what_the_last_call_raised() -> None:
    def fail() -> None:
        raise OutputError("the disk is full")

    def leave() -> None:
        with BackgroundWriter() as writer:
            writer(fail)

    with pytest.raises(OutputError, match="full"):
        leave()


def test_a_run_reads_ahead_and_writes_behind_the_computing(
    tiny: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {"write": set(), "encode": set()}
    append, run = VectorStore.append, tiny.engine.run

    def append_here(store: VectorStore, *arguments: Any) -> None:
        threads["write"].add(threading.current_thread().name)
        append(store, *arguments)

    def run_here(*arguments: Any, **options: Any) -> Any:
        threads["encode"].add(threading.current_thread().name)
        return run(*arguments, **options)

    monkeypatch.setattr(VectorStore, "append", append_here)
    monkeypatch.setattr(tiny.engine, "run", run_here)
    path = tmp_path / "a.txt"
    texts = [f"text {row}" for row in range(9000)]
    path.write_text("\n".join(texts), encoding="utf-8")
    summary = tiny.encode_dataset(path, tmp_path / "out.npy")
    assert threads["encode"] == {threading.current_thread().name}
    assert threads["write"] == threads["write"] - threads["encode"] != set()
    assert summary.rows == 9000
    monkeypatch.undo()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), tiny.encode(texts))


@pytest.mark.parametrize("overlapped", [True, False])
def test_tokenizing_beside_the_computing_changes_nothing(tiny: Embedder, overlapped: bool) -> None:
    windows = list(shard_windows(iter([Row(f"text {n}", None) for n in range(9000)]), 2000))
    embedder = LocalEmbedder(tiny.kind, {}, overlapped=overlapped)
    found = list(embedder.embed(iter(windows), lambda shard: shard == 1))
    assert [window for window, _ in found] == windows
    assert [window.shard for window, embedded in found if embedded is None] == [1]
    texts = [text for window in windows if window.shard != 1 for text in window.texts]
    vectors = [embedded.vectors for _, embedded in found if embedded is not None]
    np.testing.assert_array_equal(np.concatenate(vectors), tiny.encode(texts))


def test_a_bad_row_after_many_good_ones_leaves_their_shards(tiny: Embedder, tmp_path: Path) -> None:
    path, before = tmp_path / "a.jsonl", threading.active_count()
    path.write_text('{"text": "a"}\n' * 9000 + "{}\n", encoding="utf-8")
    with pytest.raises(RowError, match="line 9001"):
        tiny.encode_dataset(path, tmp_path / "out", shard_rows=4000)
    assert threading.active_count() == before
    found = sorted(file.name for file in (tmp_path / "out").glob("part-*"))
    assert found == ["part-00000.npy", "part-00001.npy"]


def test_what_may_wait_for_ever_is_not_drawn_by_a_thread(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n", encoding="utf-8")
    assert open_inputs([str(tmp_path / "a.txt")]).regular
    assert not open_inputs([str(tmp_path / "a.txt"), "-"]).regular
    assert not open_inputs(["/dev/stdin"], format="txt").regular
