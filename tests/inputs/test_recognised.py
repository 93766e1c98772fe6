"""Inputs whose names do not state a format or a compression: the first bytes do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet
import pytest

from encoder_engine.errors import InputError, ReadError
from encoder_engine.inputs.readers import Inputs, open_inputs
from encoder_engine.inputs.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JSONL = b'{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n'
CONTENTS: dict[str, bytes] = {
    "jsonl": JSONL,
    "csv": b'id,text\n1,one\n2,"two"\n',
    "tsv": b"id\ttext\n1\tone\n2\ttwo\n",
}


def zipped(content: bytes, *names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("inner",):
            archive.writestr(name, content)
    return packed.getvalue()


PACKING: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": lambda content: pyarrow.compress(content, codec="zstd", asbytes=True),
    "bz2": bz2.compress,
    "zip": zipped,
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that puts bytes into standard input, which is a pipe and cannot seek."""
    with ExitStack() as stack:

        def put(content: bytes) -> None:
            reader, writer = os.pipe()
            with os.fdopen(writer, "wb") as end:
                end.write(content)
            stream = stack.enter_context(os.fdopen(reader, "rb"))
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))

        yield put


def texts(inputs: Inputs) -> list[str]:
    return [row.text for row in inputs]


@pytest.mark.parametrize("packed", [None, *PACKING])
@pytest.mark.parametrize("kind", CONTENTS)
def test_standard_input_shows_its_format_by_the_first_line(
    given: Callable[[bytes], None], kind: str, packed: str | None
) -> None:
    content = CONTENTS[kind]
    given(content if packed is None else PACKING[packed](content))
    inputs = open_inputs(["-"], id_column="id")
    assert [(row.text, str(row.identifier)) for row in inputs] == [("one", "1"), ("two", "2")]
    assert inputs.recognised == {"-": kind if packed is None else f"{kind}, packed by {packed}"}


@pytest.mark.parametrize("packed", [None, *PACKING])
@pytest.mark.parametrize("name", ["part-00000", "rows.json", "rows.ndjson", "rows.dat"])
def test_a_file_of_another_ending_shows_its_format_by_the_first_line(
    tmp_path: Path, name: str, packed: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(JSONL if packed is None else PACKING[packed](JSONL))
    inputs = open_inputs([str(path)])
    assert texts(inputs) == ["one", "two"]
    assert inputs.recognised[str(path)].startswith("jsonl")
    assert [record.values["id"] for record in read_table(path)] == [1, 2]
    assert texts(open_inputs([str(tmp_path)])) == ["one", "two"]


@pytest.mark.parametrize("packed", PACKING)
def test_a_compression_is_named_by_the_suffix_or_recognised(tmp_path: Path, packed: str) -> None:
    content = PACKING[packed](JSONL)
    for name in (f"a.jsonl.{packed}", "b.jsonl"):
        (tmp_path / name).write_bytes(content)
        assert texts(open_inputs([str(tmp_path / name)])) == ["one", "two"]
    cut = tmp_path / f"cut.jsonl.{packed}"
    cut.write_bytes(content[:-5])
    with pytest.raises(ReadError, match="cannot be unpacked"):
        texts(open_inputs([str(cut)]))


def test_the_format_that_is_given_decides(given: Callable[[bytes], None], tmp_path: Path) -> None:
    given(JSONL)
    assert texts(open_inputs(["-"], format="txt")) == JSONL.decode().splitlines()
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,n\n"a",1\n')
    assert texts(open_inputs([str(path)], format="txt")) == ["text,n", '"a",1']


@pytest.mark.parametrize(
    "content",
    [b"one\ntwo\n", b"", b"{not JSON}\n", b"[1] reference\n", b"a text, and more\n", b"id,title\n"],
)
def test_lines_that_are_neither_objects_nor_records_stay_texts(
    given: Callable[[bytes], None], content: bytes
) -> None:
    given(content)
    inputs = open_inputs(["-"])
    if content:
        assert texts(inputs) == content.decode().splitlines()
        assert inputs.recognised == {"-": "txt"}
        return
    with pytest.raises(ReadError, match="no rows"):
        texts(inputs)


@pytest.mark.parametrize("content", [b'[{"text": "a"},', b"[\n", b"{\n", b'[{"text": "a"},\n'])
def test_a_json_document_is_not_read_as_lines_of_text(
    given: Callable[[bytes], None], content: bytes
) -> None:
    given(content + b'  {"text": "b"}\n]\n')
    with pytest.raises(ReadError, match=r"JSON document.*jq"):
        texts(open_inputs(["-"]))


def test_a_broken_first_line_of_json_is_refused_not_embedded(
    given: Callable[[bytes], None],
) -> None:
    given(b'{"text": "a\n{"text": "b"}\n')
    with pytest.raises(ReadError, match="standard input, line 1: broken JSON"):
        texts(open_inputs(["-"]))


def test_columns_need_a_format_with_columns(given: Callable[[bytes], None]) -> None:
    cases: list[dict[str, Any]] = [{"column": "text"}, {"column": "body"}, {"id_column": "id"}]
    for options in cases:
        given(b"plain\nlines\n")
        with pytest.raises(InputError, match=r"plain lines, which have no columns.*input_format="):
            texts(open_inputs(["-"], **options))


@pytest.mark.slow
def test_a_long_first_line_and_slow_writers_are_recognised() -> None:
    long = json.dumps({"text": "x" * 300_000})
    code = (
        "from encoder_engine.inputs.readers import open_inputs\n"
        "print([len(row.text) for row in open_inputs(['-'])])\n"
    )
    reading = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)
    assert reading.stdin is not None
    for piece in (long[:3], long[3:9], long[9:], "\n", long, "\n"):
        reading.stdin.write(piece)
        reading.stdin.flush()
    assert reading.communicate()[0] == "[300000, 300000]\n"


def test_an_archive_of_several_files_and_tables_in_pipes_are_refused(
    given: Callable[[bytes], None], tmp_path: Path
) -> None:
    path = tmp_path / "two.zip"
    path.write_bytes(zipped(JSONL, "a.jsonl", "b.jsonl"))
    with pytest.raises(ReadError, match=r"two\.zip"):
        open_inputs([str(path)])
    given(path.read_bytes())
    with pytest.raises(ReadError, match=r"2 files \(a\.jsonl, b\.jsonl\), expected one"):
        texts(open_inputs(["-"]))
    (tmp_path / "one.zip").write_bytes(zipped(b"one\ntwo\n", "texts.txt"))
    assert texts(open_inputs([str(tmp_path / "one.zip")])) == ["one", "two"]
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "table")
    assert texts(open_inputs([str(tmp_path / "table")])) == ["a"]
    given((tmp_path / "table").read_bytes())
    with pytest.raises(InputError, match="cannot be read from standard input; name the file"):
        texts(open_inputs(["-"]))


def test_a_table_of_pairs_is_recognised_by_its_columns(given: Callable[[bytes], None]) -> None:
    given(b"query,text\na,b\n")
    options: dict[str, Any] = {"column": "query", "pair_column": "text"}
    assert [row.content for row in open_inputs(["-"], **options)] == [("a", "b")]
