"""Loading stores in Python: what was embedded, and nothing that is not as it was written."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import MissingDependencyError, ReadError
from encoder_engine.vectors import store_files, stored_vectors
from encoder_engine.vectors.search import search_vectors
from encoder_engine.vectors.store import VectorStore

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder
    from encoder_engine.vectors.stored_vectors import StoredVectors

TEXTS = [f"text {row}" for row in range(23)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [json.dumps({"id": f"row-{i}", "text": text}) for i, text in enumerate(TEXTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path / "in.jsonl"


def need(shard_format: str) -> None:
    if shard_format != "npy":
        pytest.importorskip("pyarrow")
    if shard_format == "lance":
        pytest.importorskip(
            "lance", reason="pylance is not installed; it comes with the extra lance"
        )


@pytest.mark.parametrize("shard_format", ["npy", "parquet", "arrow", "lance"])
@pytest.mark.parametrize("id_column", ["id", None])
@pytest.mark.parametrize("sharded", [True, False])
def test_a_store_loads_as_it_was_embedded(
    tiny: Embedder,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shard_format: Any,
    id_column: str | None,
    sharded: bool,
) -> None:
    need(shard_format)
    monkeypatch.setattr(store_files, "BLOCK_ROWS", 4)
    path = tmp_path / ("out" if sharded else f"out.{shard_format}")
    options = {"shard_rows": 9, "shard_format": shard_format} if sharded else {}
    tiny.encode_dataset(source, path, id_column=id_column, **options)
    stored = ee.load_vectors(path)
    np.testing.assert_array_equal(stored.vectors, tiny.encode(TEXTS))
    assert (stored.rows, len(stored), stored.dimension) == (23, 23, 16)
    names = [f"row-{i}" for i in range(23)]
    assert stored.ids == (None if id_column is None else names)
    assert (stored.manifest is not None) == sharded
    assert not stored.vectors.flags.writeable
    np.testing.assert_array_equal(np.concatenate(list(stored.blocks())), stored.vectors)
    rows = np.array([0, 8, 9, 22])
    np.testing.assert_array_equal(stored.take(rows), stored.vectors[rows])
    assert repr(stored) == f"StoredVectors({str(path)!r})"
    pyarrow = pytest.importorskip("pyarrow")
    table = stored.to_arrow()
    assert table.column_names == [*([] if id_column is None else ["id"]), "embedding"]
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32(), 16)


def test_one_npy_file_is_mapped_into_memory(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    tiny.encode_dataset(source, tmp_path / "out.npy")
    tiny.encode_dataset(source, tmp_path / "out")
    for name in ("out.npy", "out"):
        assert isinstance(ee.load_vectors(tmp_path / name).vectors, np.memmap)


def test_the_comparison_can_be_left_out_and_is_made_by_default(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    tiny.encode_dataset(source, tmp_path / "out", shard_rows=9, id_column="id")
    shard = tmp_path / "out" / "part-00001.npy"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ReadError, match=r"part-00001\.npy is not as it was written"):
        ee.load_vectors(tmp_path / "out").vectors  # noqa: B018
    assert ee.load_vectors(tmp_path / "out", verify=False).vectors.shape == (23, 16)
    content[-1] ^= 1
    shard.write_bytes(content)
    ids = tmp_path / "out" / "part-00002.ids.txt"
    ids.write_text(ids.read_text("utf-8").replace("row-20", "row-21"), "utf-8")
    with pytest.raises(ReadError, match=r"part-00002\.ids\.txt is not as it was written"):
        ee.load_vectors(tmp_path / "out").ids  # noqa: B018


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((40_000, 2), np.float32))
    # Clocks of file systems tick every few milliseconds.
    os.utime(tmp_path / "a.npy", (1, 1))
    blocks = ee.load_vectors(tmp_path / "a.npy").blocks()
    next(blocks)
    with (tmp_path / "a.npy").open("r+b") as file:
        file.seek(-4, 2)
        file.write(bytes(4))
    with pytest.raises(ReadError, match="was changed while it was read"):
        list(blocks)


def wait_until_verified(stored: StoredVectors, path: Path) -> None:
    """Wait for the file to be compared with its checksum, ahead of being read."""
    end = time.monotonic() + 10
    while path not in stored._verified:
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("shard_format", ["npy", "parquet"])
def test_a_file_that_is_replaced_after_it_was_verified_is_not_read(
    tiny: Embedder, source: Path, tmp_path: Path, shard_format: Any
) -> None:
    need(shard_format)
    options = {"shard_rows": 9, "shard_format": shard_format}
    tiny.encode_dataset(source, tmp_path / "out", **options)
    other = tmp_path / "in.txt"
    other.write_text("".join(f"other {row}\n" for row in range(23)), encoding="utf-8")
    tiny.encode_dataset(other, tmp_path / "other", **options)
    name = f"part-00001.{shard_format}"
    stored = ee.load_vectors(tmp_path / "out")
    blocks = stored.blocks()
    next(blocks)
    wait_until_verified(stored, tmp_path / "out" / name)
    (tmp_path / "other" / name).replace(tmp_path / "out" / name)
    with pytest.raises(ReadError, match=rf"{name} was changed while it was read"):
        next(blocks)


@pytest.mark.parametrize("shard_format", ["npy", "parquet"])
@pytest.mark.parametrize("some", [True, False], ids=["some ids", "all ids"])
def test_ids_that_are_replaced_after_they_were_verified_are_not_used(
    tiny: Embedder,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shard_format: Any,
    some: bool,
) -> None:
    need(shard_format)
    options = {"id_column": "id", "shard_rows": 9, "shard_format": shard_format}
    tiny.encode_dataset(source, tmp_path / "out", **options)
    source.write_text(source.read_text("utf-8").replace("row-", "other-"), "utf-8")
    tiny.encode_dataset(source, tmp_path / "other", **options)
    stored = ee.load_vectors(tmp_path / "out")
    name = "part-00001.ids.txt" if shard_format == "npy" else f"part-00001.{shard_format}"

    def replace_and_read(path: Path, id_column: str | None) -> Any:
        if path.stem == "part-00001":
            wait_until_verified(stored, tmp_path / "out" / name)
            (tmp_path / "other" / name).replace(tmp_path / "out" / name)
        return store_files.read_ids(path, id_column)

    monkeypatch.setattr(stored_vectors, "read_ids", replace_and_read)
    with pytest.raises(ReadError, match=rf"{name} was changed while it was read"):
        stored.identifiers({10}) if some else stored.ids


def test_one_file_that_is_replaced_before_it_is_mapped_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones((4, 2), np.float32))

    def replace_and_map(path: Path) -> Any:
        (tmp_path / "b.npy").replace(path)
        return store_files.map_array(path)

    monkeypatch.setattr(stored_vectors, "map_array", replace_and_map)
    with pytest.raises(ReadError, match="was changed while it was read"):
        ee.load_vectors(tmp_path / "a.npy").vectors  # noqa: B018


def test_a_file_that_goes_while_it_is_read_is_a_read_error(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((40_000, 2), np.float32))
    blocks = ee.load_vectors(tmp_path / "a.npy").blocks()
    next(blocks)
    (tmp_path / "a.npy").unlink()
    with pytest.raises(ReadError, match=r"a\.npy is missing"):
        list(blocks)


def test_numbers_too_large_for_products_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((4, 16), 3e38, np.float32))
    with pytest.raises(ReadError, match="too large for dot products"):
        search_vectors(ee.load_vectors(tmp_path / "a.npy"), np.ones((1, 16), np.float32), 1)


def test_tables_that_are_no_vectors_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    fixed = pyarrow.list_(pyarrow.float32(), 2)
    good = pyarrow.array([[1.0, 2.0], [3.0, 4.0]], fixed)
    cases = {
        "lists of one fixed size": {"embedding": pyarrow.array([[1.0], [2.0, 3.0]])},
        "nulls": {"embedding": pyarrow.array([[1.0, 2.0], None], fixed)},
        "holds nulls": {"embedding": pyarrow.array([[1.0, None], [1.0, 2.0]], fixed)},
        "no_such|embedding": {"vectors": good},
        "several columns": {"a": [1, 2], "b": [1, 2], "embedding": good},
        "'id' holds nulls": {"id": ["a", None], "embedding": good},
    }
    for words, columns in cases.items():
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
        stored = ee.load_vectors(tmp_path / "a.parquet")
        with pytest.raises(ReadError, match=words):
            stored.to_arrow()


def test_rows_of_two_widths_are_refused(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    tiny.encode_dataset(source, tmp_path / "out", shard_rows=9)
    (tmp_path / "out" / "part-00001.npy").unlink()
    with VectorStore(tmp_path / "out" / "part-00001.npy") as store:
        store.append(np.ones((9, 4), np.float32))
    with pytest.raises(ReadError, match="vectors of 4 float32, those before have 16"):
        ee.load_vectors(tmp_path / "out", verify=False).vectors  # noqa: B018


def test_without_pandas_the_library_is_named(
    tiny: Embedder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    tiny.encode_dataset(source, tmp_path / "out.npy")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'pandas'$"):
        ee.load_vectors(tmp_path / "out.npy").to_pandas()
