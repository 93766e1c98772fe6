"""Inputs and outputs at addresses, in fsspec's file system in memory."""

from __future__ import annotations

import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import Embedder, load_vectors
from encoder_engine.cli import main
from encoder_engine.errors import InputError, MissingDependencyError, OutputError, ReadError
from encoder_engine.inputs import remote
from encoder_engine.inputs.readers import open_inputs
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

fsspec = pytest.importorskip("fsspec")
ROWS = [{"id": n, "text": f"text {n}"} for n in range(50)]
TEXTS = [str(row["text"]) for row in ROWS]


@pytest.fixture
def memory() -> Iterator[Any]:
    """Give an empty file system in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentence_directory(tmp_path_factory.mktemp("remote"))


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def texts_of(*names: str, **options: Any) -> list[str]:
    return [row.text for row in open_inputs(list(names), **options)]


def test_every_format_is_read_at_an_address(memory: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for name in ("ipc", "parquet"):
        pytest.importorskip(f"pyarrow.{name}")
    memory.pipe("/in/a.jsonl", lines(ROWS))
    memory.pipe("/in/b.txt.gz", gzip.compress("\n".join(TEXTS).encode()))
    table = pyarrow.table({"text": TEXTS})
    with memory.open("/in/c.parquet", "wb") as file:
        pyarrow.parquet.write_table(table, file)
    with memory.open("/in/d.arrow", "wb") as file, pyarrow.ipc.new_file(file, table.schema) as to:
        to.write_table(table)
    for name in ("a.jsonl", "b.txt.gz", "c.parquet", "d.arrow"):
        assert texts_of(f"memory://in/{name}") == TEXTS, name
    assert texts_of("memory://in/*.jsonl") == TEXTS
    assert texts_of("memory://in/") == TEXTS * 4


def test_folders_leave_out_hidden_names(memory: Any) -> None:
    memory.pipe("/f/b.txt", b"b\n")
    memory.pipe("/f/a.txt", b"a\n")
    memory.pipe("/f/_x.txt", b"x\n")
    memory.pipe("/f/.y/z.txt", b"z\n")
    assert texts_of("memory://f") == ["a", "b"]


def test_a_glob_leaves_folders_out(memory: Any) -> None:
    memory.pipe("/in/b.txt", b"b\n")
    memory.pipe("/in/c/d.txt", b"d\n")
    memory.pipe("/in/a.txt", b"a\n")
    assert texts_of("memory://in/*") == ["a", "b"]
    assert texts_of("memory://in/**") == ["a", "b", "d"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt.gz", "a.parquet"])
def test_a_connection_that_fails_is_a_read_error(
    memory: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An error of the file system's library passed as it was, neither an OSError nor ours."""

    class Lost(io.RawIOBase):
        place, size = 0, 1000

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            self.place = offset + (0, self.place, self.size)[whence]
            return self.place

        def tell(self) -> int:
            return self.place

        def readinto(self, _: object) -> int:
            raise RuntimeError("the connection was lost")

    memory.pipe(f"/in/{name}", lines(ROWS))
    monkeypatch.setattr(type(memory), "open", lambda *_, **__: Lost())
    with pytest.raises(ReadError, match=rf"{name} cannot be read: the connection was lost"):
        texts_of(f"memory://in/{name}")


def test_what_is_not_there_is_named(memory: Any) -> None:
    for name in ("memory://no/file.txt", "memory://no/*.txt"):
        with pytest.raises(ReadError, match="holds no files, or does not exist"):
            texts_of(name)
    with pytest.raises(ReadError, match="name the file by its path"):
        texts_of("file:///etc/hosts")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(MissingDependencyError, match="needs s3fs"):
        texts_of("s3://bucket/a.txt")


def test_a_finished_folder_is_copied(memory: Any, directory: Path, tmp_path: Path) -> None:
    memory.pipe("/in/a.jsonl", lines(ROWS))
    embedder = Embedder.from_pretrained(directory, device="cpu")
    summary = embedder.encode_dataset(
        "memory://in/a.jsonl", "memory://out/v", shard_rows=20, staging=tmp_path / "s"
    )
    assert (summary.rows, summary.output) == (50, "memory://out/v")
    names = sorted(path.rpartition("/")[2] for path in memory.ls("/out/v", detail=False))
    digests = [f"_part-0000{n}.rows.npy" for n in range(3)]
    assert names == ["_manifest.json", *digests, *(f"part-0000{n}.npy" for n in range(3))]
    memory.get("/out/v", str(tmp_path / "back"), recursive=True)
    stored = load_vectors(tmp_path / "back")
    # A shard is a batch of its own.
    np.testing.assert_allclose(stored.vectors, embedder.encode(TEXTS), atol=1e-6)


def test_the_manifest_comes_last(memory: Any, tmp_path: Path) -> None:
    (tmp_path / "b.npy").write_bytes(b"123")
    (tmp_path / "_manifest.json").write_text("{}")
    memory.pipe("/out/_manifest.json", b"old")
    seen: list[tuple[str, bool]] = []
    put = type(memory).put_file

    def watched(self: Any, source: str, target: str, **options: Any) -> None:
        seen.append((target, self.exists("/out/_manifest.json")))
        put(self, source, target, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(memory), "put_file", watched)
        assert remote.upload_folder(tmp_path, "memory://out", "_manifest.json") == 2
        assert seen == [("/out/b.npy", False), ("/out/_manifest.json", False)]
        patch.setattr(type(memory), "put_file", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OutputError, match=r"full; .* is whole"):
            remote.upload_folder(tmp_path, "memory://out", "_manifest.json")


def test_files_of_another_folder_are_replaced(memory: Any, tmp_path: Path) -> None:
    for name, content in (("first", b"123"), ("second", b"456")):
        folder = tmp_path / name
        folder.mkdir()
        for part in ("a.npy", "b.npy"):
            (folder / part).write_bytes(content)
        (folder / "_manifest.json").write_bytes(content)
        remote.upload_folder(folder, "memory://out", "_manifest.json")
        found = {memory.cat_file(f"/out/{part}") for part in ("a.npy", "b.npy", "_manifest.json")}
        assert found == {content}
        assert not memory.exists("/out/_uploading")


def test_a_stopped_upload_goes_on(memory: Any, tmp_path: Path) -> None:
    for part in ("a.npy", "b.npy", "_manifest.json"):
        (tmp_path / part).write_bytes(b"new")
        memory.pipe(f"/out/{part}", b"old")
    copied: list[str] = []
    put = type(memory).put_file

    def stopping(self: Any, source: str, target: str, **options: Any) -> None:
        if target == "/out/b.npy" and len(copied) == 1:
            raise OSError("stopped")
        copied.append(target)
        put(self, source, target, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(memory), "put_file", stopping)
        with pytest.raises(OutputError, match="stopped"):
            remote.upload_folder(tmp_path, "memory://out", "_manifest.json")
        assert not memory.exists("/out/_manifest.json")
        copied.append("again")
        assert remote.upload_folder(tmp_path, "memory://out", "_manifest.json") == 3
    assert copied == ["/out/a.npy", "again", "/out/b.npy", "/out/_manifest.json"]
    assert memory.cat_file("/out/b.npy") == b"new"


def test_an_address_needs_a_local_folder(
    memory: Any, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.pipe("/in/a.txt", b"a\n")
    embedder = Embedder.from_pretrained(directory, device="cpu")
    with pytest.raises(InputError, match="staging="):
        embedder.encode_dataset("memory://in/a.txt", "memory://out")
    with pytest.raises(InputError, match="staging="):
        embedder.encode_dataset("memory://in/a.txt", tmp_path / "o", staging=tmp_path / "s")
    command = ["embed", "memory://in/a.txt", "-o", "memory://out", "-m", str(directory), "-q"]
    assert main(command) == 1
    assert "--staging" in capsys.readouterr().err
    assert main([*command, "--staging", str(tmp_path / "s")]) == 0
    assert memory.exists("/out/_manifest.json")


def test_a_store_that_shrank_leaves_no_shards_at_its_address(
    memory: Any, directory: Path, tmp_path: Path
) -> None:
    embedder = Embedder.from_pretrained(directory, device="cpu")
    options: dict[str, Any] = {"id_column": "id", "shard_rows": 20, "staging": tmp_path / "s"}
    for rows in (ROWS, ROWS[:30]):
        memory.pipe("/in/a.jsonl", lines(rows))
        embedder.encode_dataset(
            "memory://in/a.jsonl", "memory://out/v", append=True, delete_missing=True, **options
        )
    found = {path.rpartition("/")[2] for path in memory.find("/out/v")}
    assert {name for name in found if name.startswith("part-")} == {
        f"part-0000{n}.{end}" for n in range(2) for end in ("npy", "ids.txt")
    }
