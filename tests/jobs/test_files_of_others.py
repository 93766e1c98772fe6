"""A folder's files are a store's where its records list them; all others stay as they are."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import OutputError, ResumeError
from encoder_engine.locks import LOCK_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder

OTHERS = {
    "_manifest.json": b'{"theirs": 1}',
    "_journal.jsonl": b"",
    "_skipped.jsonl": b"theirs",
    "part-00000.parquet": b"theirs",
    "part-00000.npy": b"theirs",
    ".lock": b"theirs",
    LOCK_NAME: b"theirs",
    "notes.txt": b"theirs",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [json.dumps({"id": i, "text": f"text {i}"}) for i in range(12)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path / "in.jsonl"


def state(folder: Path) -> dict[str, Any]:
    """Tell contents, links and times of a folder and of all in it."""
    found: dict[str, Any] = {".": folder.stat().st_mtime_ns}
    for path in sorted(folder.iterdir()):
        link = path.readlink() if path.is_symlink() else None
        content = path.read_bytes() if path.is_file() else None
        found[path.name] = (content, link, path.lstat().st_mtime_ns)
    return found


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_others_is_refused_and_left_as_it_is(
    tiny: Embedder, source: Path, tmp_path: Path, name: str, overwrite: bool
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(OTHERS[name])
    before = state(folder)
    with pytest.raises(OutputError):
        tiny.encode_dataset(source, folder, overwrite=overwrite)
    assert state(folder) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["part-00002.npy", "part-00000.parquet", "_skipped.jsonl"])
def test_files_that_no_record_lists_are_refused_where_a_run_would_write_them(
    tiny: Embedder, source: Path, tmp_path: Path, name: str, overwrite: bool
) -> None:
    folder = tmp_path / "out"
    tiny.encode_dataset(source, folder, shard_rows=6)
    (folder / name).write_bytes(b"theirs")
    before = state(folder)
    with pytest.raises(OutputError, match=f"{name}, which its records do not list"):
        tiny.encode_dataset(source, folder, shard_rows=6, overwrite=overwrite)
    assert state(folder) == before


def test_overwriting_replaces_what_is_listed_and_nothing_else(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    with source.open("a", encoding="utf-8") as file:
        file.write('{"id": 12}\n')
    tiny.encode_dataset(source, folder, shard_rows=3, id_column="id", on_error="skip")
    assert (folder / "_skipped.jsonl").exists()
    for name in ("skipped.jsonl", "manifest.json", "notes.txt", "part-1.npy"):
        (folder / name).write_bytes(b"theirs")
    options: dict[str, Any] = {"shard_rows": 6, "shard_format": "npy", "on_error": "skip"}
    source.write_text("".join(source.read_text("utf-8").splitlines(keepends=True)[:12]), "utf-8")
    tiny.encode_dataset(source, folder, overwrite=True, **options)
    ours = ["_manifest.json"]
    ours += [f"{name}.npy" for n in range(2) for name in (f"_part-{n:05d}.rows", f"part-{n:05d}")]
    theirs = ["manifest.json", "notes.txt", "part-1.npy", "skipped.jsonl"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*ours, *theirs])
    assert {(folder / name).read_bytes() for name in theirs} == {b"theirs"}


@pytest.mark.parametrize("target", ["precious", "/dev/null", "nowhere"])
def test_a_lock_that_is_a_link_is_not_followed(
    tiny: Embedder, source: Path, tmp_path: Path, target: str
) -> None:
    folder, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_bytes(b"precious")
    folder.mkdir()
    (folder / LOCK_NAME).symlink_to(tmp_path / target)
    before = state(folder)
    with pytest.raises(OutputError, match="is a symbolic link"):
        tiny.encode_dataset(source, folder)
    assert state(folder) == before
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_links_to_files_of_others_are_not_written_through(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    folder, precious = tmp_path / "out", tmp_path / "precious"
    tiny.encode_dataset(source, folder, shard_rows=6)
    content = (folder / "part-00001.npy").read_bytes()
    precious.write_bytes(content)
    (folder / "part-00001.npy").unlink()
    (folder / "part-00001.npy").symlink_to(precious)
    tiny.encode_dataset(source, folder, shard_rows=6)
    tiny.encode_dataset(source, folder, shard_rows=4, overwrite=True)
    assert precious.read_bytes() == content
    assert not (folder / "part-00001.npy").is_symlink()


def test_a_refused_run_changes_nothing(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    tiny.encode_dataset(source, folder, shard_rows=6)
    before = state(folder)
    with pytest.raises(ResumeError):
        tiny.encode_dataset(source, folder, shard_rows=5)
    assert state(folder) == before
    damaged = bytearray((folder / "part-00001.npy").read_bytes())
    damaged[-1] ^= 1
    (folder / "part-00001.npy").write_bytes(damaged)
    before = state(folder)
    with pytest.raises(OutputError, match="not as it was written"):
        tiny.encode_dataset(source, folder, shard_rows=6)
    assert state(folder) == before


@pytest.mark.slow
def test_an_overwriting_run_that_is_killed_can_be_run_again(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is gone already, the journal tells of what is left until the new run begins."""
    changes = 0

    class KilledError(BaseException):
        pass

    for number in range(100):
        folder = tmp_path / f"out-{number}"
        tiny.encode_dataset(source, folder, shard_rows=4)
        seen = 0

        def count(change: Any, number: int = number) -> Any:
            def changed(*arguments: Any, **options: Any) -> Any:
                nonlocal seen
                seen += 1
                if seen > number:
                    raise KilledError
                return change(*arguments, **options)

            return changed

        from pathlib import Path as Paths

        monkeypatch.setattr(Paths, "unlink", count(Paths.unlink))
        monkeypatch.setattr(Paths, "replace", count(Paths.replace))
        monkeypatch.setattr(os, "link", count(os.link))
        try:
            tiny.encode_dataset(source, folder, shard_rows=5, overwrite=True)
        except KilledError:
            changes += 1
        else:
            assert changes > 10
            return
        finally:
            monkeypatch.undo()
        # What a kill leaves of the lock, a new process takes over.
        tiny.encode_dataset(source, folder, shard_rows=5, overwrite=True)
        parts = sorted(path.name for path in folder.glob("part*"))
        assert parts == [f"part-{shard:05d}.npy" for shard in range(3)]
    raise AssertionError("a run that never ends")


def npy(num_rows: int) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones((num_rows, 16), np.float32))
    return stream.getvalue()


@pytest.mark.parametrize("id_column", [None, "id"])
@pytest.mark.parametrize("vectors", [None, b"", b"no vectors", npy(2)[:-1], npy(1)])
def test_ids_that_are_not_the_outputs_are_refused_and_left_as_they_are(
    tiny: Embedder, source: Path, tmp_path: Path, vectors: bytes | None, id_column: str | None
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "a.ids.txt").write_bytes(b"their\nlines\n")
    if vectors is not None:
        (folder / "a.npy").write_bytes(vectors)
    # A run that was killed while it embedded leaves vectors without a header.
    (folder / "a.npy.0123abcd.partial").write_bytes(bytes(4096))
    before = state(folder)
    with pytest.raises(
        OutputError, match=r"a\.ids\.txt .*would (be removed|remove (it|them)).*; move the"
    ):
        tiny.encode_dataset(source, folder / "a.npy", id_column=id_column, overwrite=True)
    assert state(folder) == before
    # What is refused is the file of ids alone: moved away, it stays what it is.
    (folder / "a.ids.txt").rename(folder / "theirs.txt")
    tiny.encode_dataset(source, folder / "a.npy", id_column=id_column, overwrite=True)
    assert (folder / "theirs.txt").read_bytes() == b"their\nlines\n"


def test_ids_that_are_a_link_to_nothing_are_refused(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.ids.txt").symlink_to(tmp_path / "nowhere")
    for there in (False, True):
        if there:
            (tmp_path / "a.npy").write_bytes(npy(2))
        with pytest.raises(OutputError, match="move the file away"):
            tiny.encode_dataset(source, tmp_path / "a.npy", overwrite=True)
        assert (tmp_path / "a.ids.txt").is_symlink()


@pytest.mark.parametrize("id_column", [None, "id"])
def test_ids_that_a_kill_left_without_vectors_are_the_outputs(
    tiny: Embedder, source: Path, tmp_path: Path, id_column: str | None
) -> None:
    """The vectors that the killed run had made whole are still beside them."""
    (tmp_path / "a.ids.txt").write_bytes(b"old\nids\n")
    (tmp_path / "a.npy.0123abcd.partial").write_bytes(npy(3))
    tiny.encode_dataset(source, tmp_path / "a.npy", id_column=id_column, overwrite=True)
    assert len(np.load(tmp_path / "a.npy")) == 12
    assert (tmp_path / "a.ids.txt").exists() == (id_column is not None)
