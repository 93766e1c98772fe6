"""Output files: right when whole, absent when not, never half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_engine.errors import MissingDependencyError, OutputError, ReadError
from encoder_engine.files import PendingFile
from encoder_engine.vectors.store import VectorStore, check_output, ids_path
from encoder_engine.vectors.stored_vectors import load_vectors
from tests import ROOT

VECTORS = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", [np.float32, np.int8, np.uint8])
def test_npy_holds_the_rows_in_order(tmp_path: Path, kind: Any) -> None:
    vectors = VECTORS.astype(kind)
    path = tmp_path / "a.npy"
    with VectorStore(path) as store:
        store.append(vectors[:4])
        store.append(vectors[4:])
        assert not path.exists()
    assert files(tmp_path) == ["a.npy"]
    for found in (np.load(path), np.load(path, mmap_mode="r")):
        assert found.dtype == kind
        np.testing.assert_array_equal(found, vectors)


def test_npy_has_its_ids_beside_it(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "a.npy", id_column="id") as store:
        store.append(VECTORS[:2], ["é", 7])
    assert files(tmp_path) == ["a.ids.txt", "a.npy"]
    assert ids_path(tmp_path / "a.npy").read_text("utf-8") == "é\n7\n"


@pytest.mark.parametrize("name", ["score", "values", "indices", "token_ids"])
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_ids_may_be_called_as_a_column_of_other_results(
    tmp_path: Path, name: str, ending: str
) -> None:
    path = tmp_path / f"v{ending}"
    names = [f"row {row}" for row in range(len(VECTORS))]
    with VectorStore(path, id_column=name) as store:
        store.append(VECTORS, names)
    assert load_vectors(path).ids == names


@pytest.mark.parametrize("names", [list("abcdefg"), list(range(7))])
def test_parquet_holds_ids_and_vectors(tmp_path: Path, names: list[Any]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    with VectorStore(path, id_column="key") as store:
        store.append(VECTORS[:4], names[:4])
        store.append(VECTORS[4:], names[4:])
    table = parquet.read_table(path)
    assert table.column_names == ["key", "embedding"]
    assert table.column("key").to_pylist() == names
    flat = table.column("embedding").combine_chunks().flatten().to_numpy()
    np.testing.assert_array_equal(flat.reshape(7, 3), VECTORS)


def write_store(path: Path, vectors: Any, names: list[str], *, overwrite: bool) -> None:
    with VectorStore(path, id_column="id" if names else None, overwrite=overwrite) as store:
        store.append(vectors, names)


def state(path: Path) -> tuple[bytes | None, str | None]:
    """Read vectors and ids as whoever comes now finds them."""
    identifiers = ids_path(path)
    return (
        path.read_bytes() if path.exists() else None,
        identifiers.read_text("utf-8") if identifiers.exists() else None,
    )


OLD, NEW = list("abc"), list("defg")


@pytest.mark.parametrize("new", [[], NEW], ids=["no ids", "ids"])
@pytest.mark.parametrize("old", [None, [], OLD], ids=["over nothing", "over no ids", "over ids"])
def test_vectors_never_stand_beside_ids_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: list[str] | None, new: list[str]
) -> None:
    path = tmp_path / "a.npy"
    if old is not None:
        write_store(path, VECTORS[:3], old, overwrite=False)
    whole = [state(path)]
    seen: list[tuple[bytes | None, str | None]] = []

    def watch(owner: Any, name: str) -> None:
        change = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> None:
            change(*arguments, **options)
            seen.append(state(path))

        monkeypatch.setattr(owner, name, watched)

    # A kill comes between two changes of the directory: look after each.
    for owner, name in ((Path, "unlink"), (Path, "replace"), (os, "link")):
        watch(owner, name)
    write_store(path, VECTORS[3:], new, overwrite=old is not None)
    whole.append(state(path))
    assert whole[-1][1] == ("".join(f"{name}\n" for name in new) or None)
    np.testing.assert_array_equal(np.load(path), VECTORS[3:])
    assert seen[-1] == whole[-1]
    assert all(vectors is None or (vectors, names) in whole for vectors, names in seen)


@pytest.mark.slow
def test_a_kill_between_the_renames_leaves_no_vectors_with_ids_of_others(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    write_store(path, VECTORS[:3], OLD, overwrite=False)
    script = """
        import os, signal, sys
        from pathlib import Path
        import numpy as np
        from encoder_engine.vectors.store import VectorStore
        from encoder_engine.files import PendingFile
        publish = PendingFile.publish
        def publish_and_die(file):
            publish(file)
            os.kill(os.getpid(), signal.SIGKILL)
        PendingFile.publish = publish_and_die
        with VectorStore(Path(sys.argv[1]), id_column="id", overwrite=True) as store:
            store.append(np.ones((1, 3), np.float32), ["z"])
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    result = subprocess.run(command, check=False, cwd=ROOT)
    assert result.returncode == -signal.SIGKILL
    assert state(path) == (None, "z\n")
    write_store(path, VECTORS[:1], ["y"], overwrite=True)
    assert state(path)[1] == "y\n"


def test_ids_are_taken_back_where_the_vectors_cannot_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npy"
    store = VectorStore(path, id_column="id")
    store.append(VECTORS[:3], OLD)
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="meanwhile"):
        store.__exit__(None, None, None)
    assert state(path) == (b"precious", None)
    path.unlink()

    def fail(_directory: Path) -> None:
        if path.exists():
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("encoder_engine.files.sync_directory", fail)
    with pytest.raises(OutputError, match="nothing is left"):
        write_store(path, VECTORS[:3], OLD, overwrite=False)
    assert files(tmp_path) == []


def test_ids_without_vectors_are_in_the_way_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    ids_path(path).write_text("precious", encoding="utf-8")
    with pytest.raises(OutputError, match=r"a\.ids\.txt exists"):
        VectorStore(path)
    ids_path(path).unlink()
    store = VectorStore(path)
    store.append(VECTORS)
    ids_path(path).write_text("precious", encoding="utf-8")
    with pytest.raises(OutputError, match=r"a\.ids\.txt exists"):
        store.__exit__(None, None, None)
    assert state(path) == (None, "precious")
    write_store(path, VECTORS, [], overwrite=True)
    assert files(tmp_path) == ["a.npy"]


@pytest.mark.parametrize("id_column", [None, "id"])
def test_an_input_is_never_replaced_nor_removed(tmp_path: Path, id_column: str | None) -> None:
    for name in ("a.npy", "a.ids.txt"):
        (tmp_path / name).touch()
        with pytest.raises(OutputError, match=f"{name} is one of the inputs"):
            check_output(
                tmp_path / "a.npy", id_column=id_column, overwrite=True, inputs=[tmp_path / name]
            )
        check_output(
            tmp_path / "b.npy", id_column=id_column, overwrite=True, inputs=[tmp_path / name]
        )


def test_an_existing_output_is_left_alone_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="overwrite=True"):
        VectorStore(path)
    assert path.read_bytes() == b"precious"
    with VectorStore(path, overwrite=True) as store:
        store.append(VECTORS)
        assert path.read_bytes() == b"precious"
    assert np.load(path).shape == (7, 3)
    (tmp_path / "b.ids.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(OutputError, match=r"b\.ids\.txt exists"):
        VectorStore(tmp_path / "b.npy", id_column="id")


def test_an_output_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    store = VectorStore(path)
    store.append(VECTORS)
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="meanwhile"):
        store.__exit__(None, None, None)
    assert path.read_bytes() == b"precious"
    assert files(tmp_path) == ["a.npy"]


@pytest.mark.parametrize("ending", ["npy", "parquet"])
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, ending: str, error: type[BaseException]
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")

    def run() -> None:
        with VectorStore(tmp_path / f"a.{ending}", id_column="id") as store:
            store.append(VECTORS, list(range(7)))
            raise error

    with pytest.raises(error):
        run()
    assert files(tmp_path) == []


def test_a_run_without_rows_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no rows"), VectorStore(tmp_path / "a.npy"):
        pass
    assert files(tmp_path) == []


def test_places_that_cannot_be_written_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    cases = [("a.csv", r".npy, .parquet"), ("folder.npy", "directory"), ("no/a.npy", "make it")]
    for name, word in cases:
        with pytest.raises(OutputError, match=word):
            VectorStore(tmp_path / name)


def test_a_place_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Changing the folder's mode would not do: root may write anywhere.
    monkeypatch.setattr("os.access", lambda *_arguments: False)
    with pytest.raises(OutputError, match="not writable"):
        VectorStore(tmp_path / "a.npy")


def test_ids_of_two_types_are_refused_in_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    with VectorStore(path, id_column="id") as store:
        store.append(VECTORS[:3], [1, 2, 3])
        with pytest.raises(ReadError, match="row 4") as error:
            store.append(VECTORS[3:5], [4, "5"])
        assert error.value.row == 4
    path.unlink()
    with pytest.raises(ReadError, match="64 bits"), VectorStore(path, id_column="id") as store:
        store.append(VECTORS[:1], [2**63])
    with pytest.raises(OutputError, match="embedding"):
        VectorStore(path, id_column="embedding")
    assert files(tmp_path) == []


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[data\]"):
        VectorStore(tmp_path / "a.parquet")
    assert files(tmp_path) == []


def test_lance_without_pylance_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, "lance.file", None)
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[lance\]"):
        VectorStore(tmp_path / "a.lance")
    assert files(tmp_path) == []


def test_lance_writes_the_same_bytes_again_and_leaves_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed; it comes with the extra lance")
    rows = np.random.default_rng(0).random((20, 4096, 64), dtype=np.float32)
    for name in ("a.lance", "b.lance", "c.lance"):
        with VectorStore(tmp_path / name, id_column="id") as store:
            for part, vectors in enumerate(rows):
                store.append(vectors, [f"row {part} {row}" for row in range(4096)])
    contents = {path.read_bytes() for path in tmp_path.iterdir()}
    assert files(tmp_path) == ["a.lance", "b.lance", "c.lance"]
    assert len(contents) == 1


def test_a_file_system_without_hard_links_still_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_arguments: object) -> None:
        raise OSError(38, "not implemented")

    monkeypatch.setattr("os.link", no_links)
    with VectorStore(tmp_path / "a.npy") as store:
        store.append(VECTORS)
    assert files(tmp_path) == ["a.npy"]


def test_a_file_that_cannot_be_made_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OutputError, match="No space left"):
        PendingFile(tmp_path / "a.npy", overwrite=False)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["npy", "parquet", "arrow", "lance"])
def test_a_full_disk_is_an_output_error_that_leaves_nothing(tmp_path: Path, ending: str) -> None:
    # A limit on file sizes fails a write as a full disk does, and spares mounting one.
    if ending != "npy":
        pytest.importorskip("pyarrow")
    if ending == "lance":
        pytest.importorskip(
            "lance", reason="pylance is not installed; it comes with the extra lance"
        )
    script = """
        import resource, signal, sys
        from pathlib import Path
        import numpy as np
        from encoder_engine.vectors.store import VectorStore
        from encoder_engine.errors import OutputError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        rows = np.random.default_rng(0).random((4096, 64), dtype=np.float32)
        try:
            with VectorStore(Path(sys.argv[1])) as store:
                for _ in range(8):
                    store.append(rows)
        except OutputError as error:
            print(error)
            sys.exit(7)
    """

    path = tmp_path / f"a.{ending}"
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 7, result.stderr
    assert "could not be completed" in result.stdout
    assert files(tmp_path) == []


def test_old_names_are_gone_from_the_disk_in_order_before_new_ones_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npy"
    synced: list[list[str]] = []

    def write() -> None:
        with VectorStore(path, id_column="id", overwrite=True) as store:
            store.append(VECTORS, [str(row) for row in range(7)])

    def sync(folder: Path) -> None:
        synced.append([name for name in files(folder) if not name.endswith(".partial")])

    write()
    for module in ("vectors.store", "files"):
        monkeypatch.setattr(f"encoder_engine.{module}.sync_directory", sync)
    write()
    assert synced == [["a.ids.txt"], [], ["a.ids.txt"], ["a.ids.txt", "a.npy"]]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "lance"])
def test_readers_of_a_folder_pass_over_a_file_that_is_being_written(
    tmp_path: Path, ending: str
) -> None:
    import pyarrow.dataset

    if ending == "lance":
        pytest.importorskip("lance")
    vectors = np.ones((3, 4), np.float32)
    with VectorStore(tmp_path / f"part-00000.{ending}") as store:
        store.append(vectors)
    with VectorStore(tmp_path / f"part-00001.{ending}") as store:
        store.append(vectors)
        others = [path.name for path in tmp_path.iterdir() if path.name != f"part-00000.{ending}"]
        assert others
        assert all(name.startswith("_") for name in others)
        if ending == "parquet":  # what pandas.read_parquet calls
            assert pyarrow.parquet.read_table(tmp_path).num_rows == 3
        if ending != "lance":
            assert pyarrow.dataset.dataset(tmp_path, format=ending).count_rows() == 3
