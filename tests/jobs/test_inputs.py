"""What a run takes, what it leaves out where it may, and what it refuses in one line."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import (
    InputError,
    OutputError,
    ReadError,
    RowError,
    SequenceLengthError,
)
from encoder_engine.inputs.readers import open_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder

TEXTS = ["the text", "a row", "", "words"]


def skipped(path: Path) -> list[tuple[str, int, str]]:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(line["file"].rpartition("/")[2], line["number"], line["reason"]) for line in lines]


def jsonl(texts: list[Any]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def test_every_kind_of_input_gives_the_same_vectors(tiny: Embedder, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("pyarrow.feather")
    table = pyarrow.table({"text": TEXTS})
    content = jsonl(TEXTS)
    files = {
        "a.txt": ("\n".join(TEXTS) + "\n").encode(),
        "a.jsonl": content,
        "a.jsonl.gz": gzip.compress(content),
        "a.jsonl.xz": lzma.compress(content),
        "a.jsonl.zst": pyarrow.compress(content, codec="zstd", asbytes=True),
        "a.csv": ("text\n" + "".join(f'"{text}"\n' for text in TEXTS)).encode(),
        "a.tsv": ("text\n" + "".join(f'"{text}"\n' for text in TEXTS)).encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "a.feather")
    with pyarrow.ipc.new_stream(tmp_path / "a.ipc", table.schema) as writer:
        writer.write_table(table)
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    truth = tiny.encode(TEXTS)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 11
    for name in names:
        summary = tiny.encode_dataset(tmp_path / name, tmp_path / "out.npy", overwrite=True)
        assert summary.rows == 4
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), truth, err_msg=name)
    summary = tiny.encode_dataset(
        [tmp_path / name for name in names], tmp_path / "all.npy", overwrite=True
    )
    np.testing.assert_array_equal(np.load(tmp_path / "all.npy"), np.tile(truth, (11, 1)))


def test_a_directory_and_a_glob_stand_for_files_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for name in ("b.txt", "a/z.txt", "a/_SUCCESS", ".hidden/c.txt", "_temporary/d.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n", encoding="utf-8")
    assert [row.text for row in open_inputs([str(folder)])] == ["a/z.txt", "b.txt"]
    assert [row.text for row in open_inputs([f"{folder}/[ab]*/*.txt", f"{folder}/b.*"])] == [
        "a/z.txt",
        "b.txt",
    ]
    with pytest.raises(ReadError, match="matches no file"):
        open_inputs([f"{folder}/*.csv"])


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("itself\n", encoding="utf-8")
    (tmp_path / "a1.txt").write_text("another\n", encoding="utf-8")
    assert [row.text for row in open_inputs([str(tmp_path / "a[1].txt")])] == ["itself"]


# File name, content, the good texts, and (line, words) of the rows left out.
SKIPPED: dict[str, tuple[str, bytes, list[str], list[tuple[int, str]]]] = {
    "nulls and other types": (
        "a.jsonl",
        b'{"text": null}\n{"text": "a"}\n{"text": 3}\n{"text": ["b"]}\n',
        ["a"],
        [(1, "null"), (3, "int"), (4, "list")],
    ),
    "broken JSON": (
        "a.jsonl",
        b'{"text": "a"\n{"text": "b"}\n\n[]\n',
        ["b"],
        [(1, "broken JSON"), (3, "blank"), (4, "object")],
    ),
    "rows without the column": (
        "a.jsonl",
        b'{"body": "a"}\n{"text": "b"}\n',
        ["b"],
        [(1, "no column")],
    ),
    "mixed encodings": ("a.txt", b"one\ncaf\xe9\nthr\xc3\xa9\n", ["one", "thr\xe9"], [(2, "0xE9")]),
    "mixed encodings in JSON": (
        "a.jsonl",
        b'{"text": "\xe9"}\n{"text": "b"}\n',
        ["b"],
        [(1, "not UTF-8")],
    ),
    "mixed encodings in CSV": ("a.csv", b"text,n\n\xe9,1\nb,2\n", ["b"], [(2, "0xE9")]),
    "another encoding where nobody reads": ("a.csv", b"text,n\na,\xe9\n", ["a"], []),
    "records of other lengths": (
        "a.csv",
        b"text,n\na,1\nb\nc,1,2\n\nd,4\n",
        ["a", "d"],
        [(3, "1 fields"), (4, "3 fields"), (5, "blank")],
    ),
    "a lone surrogate": (
        "a.jsonl",
        b'{"text": "\\ud83d"}\n{"text": "b"}\n',
        ["b"],
        [(1, "surrogate")],
    ),
    "long texts": ("a.txt", b"a" * 21 + b"\nb\n", ["b"], [(1, "21 characters")]),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_bad_rows_are_left_out_and_listed(tiny: Embedder, tmp_path: Path, case: str) -> None:
    name, content, good, bad = SKIPPED[case]
    (tmp_path / name).write_bytes(content)
    options: dict[str, Any] = {"on_error": "skip", "max_characters": 20}
    summary = tiny.encode_dataset(tmp_path / name, tmp_path / "out.npy", **options)
    assert (summary.rows, summary.skipped_rows) == (len(good), len(bad))
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), tiny.encode(good))
    listed = tmp_path / "out.skipped.jsonl"
    assert listed.exists() == bool(bad)
    if bad:
        found = skipped(listed)
        assert [(file, number) for file, number, _ in found] == [(name, line) for line, _ in bad]
        for (_, _, reason), (_, word) in zip(found, bad, strict=True):
            assert word in reason
        with pytest.raises(RowError) as caught:
            tiny.encode_dataset(tmp_path / name, tmp_path / "no.npy", max_characters=20)
        assert (caught.value.file, caught.value.number) == (str(tmp_path / name), bad[0][0])
        assert not (tmp_path / "no.npy").exists()


def test_bad_rows_of_tables_are_left_out_and_listed(tiny: Embedder, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    texts = pyarrow.array([b"a", None, b"\xff", b"d"]).view(pyarrow.string())
    table = pyarrow.table({"text": texts, "id": [1, 2, 3, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    summary = tiny.encode_dataset(
        tmp_path / "a.parquet", tmp_path / "out/", id_column="id", on_error="skip", unique_ids=True
    )
    assert (summary.rows, summary.skipped_rows) == (1, 3)
    found = skipped(tmp_path / "out" / "_skipped.jsonl")
    assert [number for _, number, _ in found] == [2, 3, 4]
    for (_, _, reason), word in zip(found, ["null", "not UTF-8", "came before"], strict=True):
        assert word in reason


def test_ids_may_come_again_unless_they_are_to_be_unique(tiny: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "id": 7}\n{"text": "b", "id": "7"}\n', encoding="utf-8")
    assert tiny.encode_dataset(path, tmp_path / "out.npy", id_column="id").rows == 2
    with pytest.raises(RowError, match="line 2: the id '7' came before"):
        tiny.encode_dataset(path, tmp_path / "no.npy", id_column="id", unique_ids=True)
    inputs = open_inputs([str(path)], id_column="id", unique_ids=True).skipping(lambda _error: None)
    assert [len(list(inputs)), len(list(inputs))] == [1, 1]


def test_an_empty_file_that_is_named_is_listed_and_one_in_a_folder_is_not(
    tiny: Embedder, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"")
    (folder / "b.txt").write_bytes(b"b\n")
    assert tiny.encode_dataset(folder, tmp_path / "folder.npy").rows == 1
    assert tiny.encode_dataset(folder / "*.txt", tmp_path / "glob.npy").rows == 1
    files = [folder / "a.txt", folder / "b.txt"]
    summary = tiny.encode_dataset(files, tmp_path / "out.npy", on_error="skip")
    assert (summary.rows, summary.skipped_rows) == (1, 1)
    assert skipped(tmp_path / "out.skipped.jsonl")[0][:2] == ("a.txt", 0)


def test_nothing_but_bad_rows_is_no_output(tiny: Embedder, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"")
    (folder / "b.txt").write_bytes(b"\xff\n")
    for name in ("no.npy", "no/"):
        with pytest.raises(OutputError, match="no rows"):
            tiny.encode_dataset(folder, tmp_path / name, on_error="skip")
    assert not list(tmp_path.glob("no.npy*"))


def truncated_parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    import pyarrow as arrow

    pyarrow.write_table(arrow.table({"text": ["a"] * 1000}), path)
    path.write_bytes(path.read_bytes()[:-20])


GZIPPED = gzip.compress(jsonl([f"text {n}" for n in range(5000)]))
# What no skipping helps against: name, content, words of the one line.
BROKEN: dict[str, tuple[str, bytes, str]] = {
    "an archive cut short": ("a.jsonl.gz", GZIPPED[:-500], "cannot be unpacked"),
    "an archive damaged within": (
        "a.jsonl.gz",
        GZIPPED[:3000] + bytes(64) + GZIPPED[3064:],
        "cannot be unpacked|broken JSON|not UTF-8",
    ),
    "no archive": ("a.jsonl.gz", b"plain", "cannot be unpacked"),
    "no xz": ("a.txt.xz", b"plain", "cannot be unpacked"),
    "no zstd": ("a.txt.zst", b"plain", "cannot be unpacked"),
    "utf-16": ("a.txt", "one\ntwo\n".encode("utf-16"), "UTF-16"),
    "a table without the column": ("a.csv", b"body\na\n", "no column 'text'"),
    "a quote never closed": ("a.csv", b'text\n"a\nb\n', "quot"),
    "no Arrow file": ("a.arrow", b"ARROW1 is this none", "damaged"),
    "an empty Arrow file": ("a.arrow", b"", "damaged"),
}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_ends_the_run(
    tiny: Embedder, tmp_path: Path, case: str, on_error: Any
) -> None:
    name, content, word = BROKEN[case]
    if name.endswith(("zst", "arrow")):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadError, match=word) as caught:
        tiny.encode_dataset(tmp_path / name, tmp_path / "out/", on_error=on_error, shard_rows=1000)
    assert name in str(caught.value)
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_a_truncated_parquet_ends_the_run(tiny: Embedder, tmp_path: Path) -> None:
    truncated_parquet(tmp_path / "a.parquet")
    with pytest.raises(ReadError, match="damaged"):
        tiny.encode_dataset(tmp_path / "a.parquet", tmp_path / "out/", on_error="skip")


def test_a_row_of_100_megabytes_is_embedded_or_left_out(tiny: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * 20_000_000 + b"\nb\n")
    summary = tiny.encode_dataset(path, tmp_path / "out.npy")
    assert (summary.rows, summary.truncated_rows) == (2, 1)
    summary = tiny.encode_dataset(path, tmp_path / "less.npy", max_characters=1000, on_error="skip")
    assert (summary.rows, summary.skipped_rows) == (1, 1)


def test_a_text_cut_where_none_may_be_ends_the_run(tiny: Embedder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n" + "long " * 40 + "\n", encoding="utf-8")
    with pytest.raises(SequenceLengthError, match="text 1"):
        tiny.encode_dataset(tmp_path / "a.txt", tmp_path / "out/", on_truncation="error")


def test_standard_input_can_be_gone_on_with(
    tiny: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(num_rows: int) -> None:
        content = "".join(f"text {row}\n" for row in range(num_rows)).encode()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    given(12)
    tiny.encode_dataset("-", tmp_path / "out/", shard_rows=5)
    given(12)
    assert tiny.encode_dataset("-", tmp_path / "out/", shard_rows=5).resumed_rows == 12
    given(11)
    with pytest.raises(OutputError, match="inputs changed"):
        tiny.encode_dataset("-", tmp_path / "out/", shard_rows=5)


def test_ids_of_two_types_in_two_shards_are_refused_in_tables(
    tiny: Embedder, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "id": 7}\n{"text": "b", "id": "x"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="the first id is of type int"):
        tiny.encode_dataset(
            path, tmp_path / "out/", id_column="id", shard_rows=1, shard_format="arrow"
        )
