"""Reading input files: every format, and every bad row by file, line and mend."""

from __future__ import annotations

import csv
import io
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import InputError, MissingDependencyError, ReadError
from encoder_engine.inputs.readers import open_inputs

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, **options: Any) -> list[tuple[str, Any]]:
    return [(row.text, row.identifier) for row in open_inputs([str(path)], **options)]


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_lines_are_texts_whatever_ends_them(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufefffirst\r\n\n  third \u2028 x\x0b\nlast".encode())
    texts = [text for text, _ in read(path)]
    assert texts == ["first", "", "  third \u2028 x\x0b", "last"]


def test_jsonl_reads_the_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "a\\nb", "n": 7}\n{"n": "x", "body": ""}\n', encoding="utf-8")
    assert read(path, column="body", id_column="n") == [("a\nb", 7), ("", "x")]


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_separated_values_may_quote_line_breaks(
    tmp_path: Path, ending: str, delimiter: str
) -> None:
    path = tmp_path / f"a.{ending}"
    lines = ["id,text", '1,"two\nlines, and ""quotes"""', "2,"]
    text = "\n".join(line.replace(",", delimiter, 1) for line in lines)
    path.write_text(text, encoding="utf-8")
    assert read(path, id_column="id") == [('two\nlines, and "quotes"', "1"), ("", "2")]


def test_a_field_longer_than_the_csv_modules_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "a" * 200_000 + "\nb\n", encoding="utf-8")
    before = csv.field_size_limit()
    rows = iter(open_inputs([str(path)]))
    assert len(next(rows).text) == 200_000
    assert csv.field_size_limit() == before
    assert [row.text for row in rows] == ["b"]


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n\r\n"])
@pytest.mark.parametrize("header", ["text", "text,id"])
def test_blank_lines_at_the_end_of_a_csv_are_no_records(
    tmp_path: Path, header: str, end: str
) -> None:
    path = tmp_path / "a.csv"
    record = header.replace("text", "a").replace("id", "1")
    path.write_text(f"{header}\n{record}{end}", encoding="utf-8", newline="")
    assert [text for text, _ in read(path)] == ["a"]


def test_parquet_reads_strings_of_every_encoding(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    texts = ["a", "b", "a"]
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
        columns = {"text": pyarrow.array(texts, kind), "id": [3, 2, 1]}
        path = write_parquet(tmp_path / "a.parquet", columns)
        assert read(path, id_column="id") == [("a", 3), ("b", 2), ("a", 1)]
    columns = {"text": pyarrow.array(texts).dictionary_encode()}
    assert len(read(write_parquet(tmp_path / "b.parquet", columns))) == 3


def test_several_files_follow_one_another_and_are_metered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "three"}\n', encoding="utf-8")
    inputs = open_inputs([str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")])
    assert [row.text for row in inputs] == ["one", "two", "three"]
    assert inputs.total_bytes == inputs.meter.num_bytes > 0


def test_standard_input_may_hold_lines_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    given(b"one\ntwo\n")
    inputs = open_inputs(["-"])
    assert inputs.total_bytes is None
    assert [row.text for row in inputs] == ["one", "two"]
    given(b'{"text": "one"}\n')
    assert [row.text for row in open_inputs(["-"], format="jsonl")] == ["one"]
    given(b"\xff\n")
    with pytest.raises(ReadError, match="standard input, line 1"):
        list(open_inputs(["-"]))


# File name, content, options, and words of the message.
BAD_FILES: dict[str, tuple[str, bytes, dict[str, Any], tuple[str, ...]]] = {
    "an empty text file": ("a.txt", b"", {}, ("no rows",)),
    "an empty jsonl": ("a.jsonl", b"", {}, ("no rows",)),
    "an empty csv": ("a.csv", b"", {}, ("no rows",)),
    "a csv of a header only": ("a.csv", b"text\n", {}, ("no rows",)),
    "an empty parquet": ("a.parquet", b"", {}, ("damaged",)),
    "text in latin-1": ("a.txt", b"one\ncaf\xe9\n", {}, ("line 2", "byte 4 (0xE9)", "iconv")),
    "text in utf-16": ("a.txt", "one".encode("utf-16"), {}, ("line 1", "UTF-16")),
    "utf-16 without a mark": ("a.txt", "é".encode("utf-16-be") + b"\0\xff", {}, ("UTF-16",)),
    "jsonl in latin-1": ("a.jsonl", b'{"text": "\xe9"}\n', {}, ("line 1", "iconv")),
    "csv in latin-1": ("a.csv", b"text\n\xe9\n", {}, ("line 2", "iconv")),
    "broken json": ("a.jsonl", b'{"text": "a"}\n{"text": \n', {}, ("line 2", "broken JSON")),
    "json cut off": ("a.jsonl", b'{"text": "a"}\n{"text": "b', {}, ("line 2", "Unterminated")),
    "json nested too deep": ("a.jsonl", b"[" * 200_000, {}, ("line 1", "JSON")),
    "a number too long": ("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", {}, ("line 1",)),
    "a text named twice": (
        "a.jsonl",
        b'{"text": "a"}\n{"text": "a", "text": "b"}\n',
        {},
        ("line 2", "'text' occurs twice"),
    ),
    "an empty line": ("a.jsonl", b'{"text": "a"}\n\n{}', {}, ("line 2", "blank")),
    "a list for a row": ("a.jsonl", b'["a"]\n', {}, ("line 1", "list")),
    "a text for a row": ("a.jsonl", b'"a"\n', {}, ("line 1", "str")),
    "a missing column": ("a.jsonl", b'{"txt": "a"}\n', {}, ("'text'", "did you mean 'txt'")),
    "a row without the column": (
        "a.jsonl",
        b'{"text": "a"}\n{"title": "b"}\n',
        {},
        ("line 2", "title"),
    ),
    "a null text": ("a.jsonl", b'{"text": null}\n', {}, ("line 1", "null", "drop the row")),
    "a number for a text": ("a.jsonl", b'{"text": 3}\n', {}, ("line 1", "int 3")),
    "NaN for a text": ("a.jsonl", b'{"text": NaN}\n', {}, ("line 1", "float nan")),
    "a list for a text": ("a.jsonl", b'{"text": ["a"]}\n', {}, ("line 1", "list")),
    "a lone surrogate": ("a.jsonl", b'{"text": "a\\ud83d"}\n', {}, ("line 1", "U+D83D")),
    "a missing id": ("a.jsonl", b'{"text": "a"}\n', {"id_column": "id"}, ("no column 'id'",)),
    "a null id": ("a.jsonl", b'{"text": "a", "id": null}', {"id_column": "id"}, ("null",)),
    "a number with a point for an id": (
        "a.jsonl",
        b'{"text": "a", "id": 1.5}',
        {"id_column": "id"},
        ("float",),
    ),
    "an id of two lines": (
        "a.jsonl",
        b'{"text": "a", "id": "b\\nc"}',
        {"id_column": "id"},
        ("line break",),
    ),
    "a csv without the column": ("a.csv", b"title,body\na,b\n", {}, ("'text'", "title, body")),
    "a csv with the column twice": ("a.csv", b"text,text\na,b\n", {}, ("2 times",)),
    "a short record": ("a.csv", b"id,text\n1,a\n2\n", {}, ("line 3", "1 fields", "has 2")),
    "a long record": ("a.csv", b"id,text\n1,a,b\n", {}, ("line 2", "3 fields")),
    "an empty csv line": ("a.csv", b"id,text\n\n1,a\n", {}, ("line 2", "blank")),
    "two empty csv lines": ("a.csv", b"text\na\n\n\nb\n", {}, ("line 3", "blank")),
    "a csv of blank lines": ("a.csv", b"text\n\n\n", {}, ("no rows",)),
    "a csv that begins blank": ("a.csv", b"\ntext\na\n", {}, ("line 1", "'text'")),
    "a quote never closed": ("a.csv", b'text\n"a\nb\n', {}, ("line 3", "quot")),
    "a quote within": ("a.csv", b'text\n"a"b\n', {}, ("line 2", "quot")),
    "no parquet file": ("a.parquet", b"PAR1 this is none", {}, ("damaged",)),
    "an unknown ending": ("a.docx", b"x", {}, (".docx", "input_format=")),
    "a packed file": ("a.jsonl.gz", b"x", {}, (".gz", "unpack")),
    "no ending": ("texts", b"x", {}, ("(none)",)),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_by_name_and_line(tmp_path: Path, case: str) -> None:
    name, content, options, words = BAD_FILES[case]
    path = tmp_path / name
    path.write_bytes(content)
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
    with pytest.raises(ReadError) as caught:
        read(path, **options)
    for word in (name, *words):
        assert word in str(caught.value)


def test_good_rows_before_a_bad_one_are_given_first(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "b"}\n{"text": 1}\n')
    rows = iter(open_inputs([str(path)]))
    assert [next(rows).text, next(rows).text] == ["a", "b"]
    with pytest.raises(ReadError) as caught:
        next(rows)
    assert caught.value.row == 2


def test_a_missing_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a", encoding="utf-8")
    with pytest.raises(ReadError, match=r"did you mean .*texts\.txt"):
        open_inputs([str(tmp_path / "text.txt")])
    with pytest.raises(ReadError, match="does not exist"):
        open_inputs([str(tmp_path / "no" / "such.txt")])


@pytest.mark.parametrize("name", ["folder", "folder.txt"])
def test_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ReadError, match="directory"):
        open_inputs([str(tmp_path / name)])


@pytest.mark.parametrize(
    ("names", "options", "word"),
    [
        ([], {}, "no input"),
        (["-", "-"], {}, "once"),
        (["-"], {"format": "txt", "column": "text"}, "plain lines"),
        (["-"], {"format": "txt", "id_column": "id"}, "plain lines"),
        (["-"], {"format": "parquet"}, "standard input"),
        (["-"], {"format": "jsonl", "column": "a", "id_column": "a"}, "both"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    names: list[str], options: dict[str, Any], word: str
) -> None:
    with pytest.raises(InputError, match=word):
        open_inputs(names, **options)


def test_bad_parquet_columns_and_rows_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"body": ["a"]}, {}, r"no single column 'text'; there are body"),
        ({"text": [1, 2]}, {}, "holds int64"),
        ({"text": pyarrow.array([b"a"])}, {}, "holds binary"),
        ({"text": [["a"]]}, {}, "holds list"),
        ({"text": ["a", None]}, {}, "row 2: text is null"),
        ({"text": ["a"], "id": [1.5]}, {"id_column": "id"}, "holds double"),
        ({"text": ["a"], "id": pyarrow.array([None], "int64")}, {"id_column": "id"}, "id is null"),
        ({"text": pyarrow.array([], "string")}, {}, "no rows"),
        ({"text": pyarrow.array([b"\xff"]).view(pyarrow.string())}, {}, "not UTF-8"),
    ]
    for columns, options, words in cases:
        write_parquet(path, columns)
        with pytest.raises(ReadError, match=words):
            read(path, **options)


def test_a_parquet_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a"] * 1000})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ReadError, match="damaged"):
        read(path)


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[data\]"):
        open_inputs([str(tmp_path / "a.parquet")])
