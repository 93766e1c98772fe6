"""Rows read from mapped files are those of the reader by strings, with the same errors."""

from __future__ import annotations

import gzip
import json
import mmap
import random
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine import _native
from encoder_engine.errors import ReadError, RowError
from encoder_engine.inputs import text_rows
from encoder_engine.inputs.readers import Inputs, open_inputs
from encoder_engine.inputs.text_rows import read_text_rows

if TYPE_CHECKING:
    from pathlib import Path

# What a line of JSON may be: sound ones, ones that only Python's reader can judge, and bad ones.
JSON_LINES = (
    '{"text": "plain"}',
    ' \t{ "text" : "é中😀" , "more" : [1, -0.5e3, {"a": null}, "\\u00e9", [], {}] } ',
    '{"n": 1, "text": "esc \\n \\" \\\\ \\/ \\u00e9 \\ud83d\\ude00 \\u0000"}',
    '{"text": "", "n": true}',
    '{"text": "lone \\ud800"}',
    '{"text": "lone \\udc00\\ud800"}',
    '{"te\\u0078t": "by an escape"}',
    '{"text": "twice", "text": "twice"}',
    '{"text": "a", "o": {"k": 1, "k": 2}}',
    '{"text": NaN}',
    '{"text": "a", "n": NaN, "m": -Infinity}',
    '{"text": null}',
    '{"text": 5}',
    '{"other": "a"}',
    '{"text": "a"',
    '{"text": "a"} x',
    '{"text": "a",}',
    '{"text": "a\tb"}',
    '{"text": "a", "n": 01}',
    '{"text": "a", "n": 1.}',
    '{"text": "a", "n": ' + "9" * 5000 + "}",
    '{"text": "a", "d": ' + "[" * 80 + "]" * 80 + "}",
    '{"text": "a", ' + ", ".join(f'"{n}": {n}' for n in range(70)) + "}",
    '["text"]',
    '"text"',
    "",
    " \t",
    "\x0b\x0c",
    "{}",
    "\ufeff{}",
    '{"text": "\u2028\x7f"}',
    '{"text": "' + "中a" * 400 + '"}',
)
BAD_BYTES = (
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\xf0\x80\x80\x80",
    b"\0",
)


def outcome(rows: Any, bad: list[RowError]) -> Any:
    """Give the texts and the bad rows, or what ended the reading."""
    try:
        return list(rows), [(str(error), error.row, error.number) for error in bad]
    except ReadError as error:
        return type(error), str(error), error.row


def check_equal(path: Path, *, group: int = 1 << 24, **options: Any) -> Any:
    """Compare both readers, with bad rows skipped and with the first one raised."""

    def opened(bad: list[RowError] | None) -> Inputs:
        inputs = open_inputs([str(path)], **options)
        return inputs if bad is None else inputs.skipping(bad.append)

    found: Any = None
    for skips in (True, False):
        by_strings: list[RowError] = []
        by_rows: list[RowError] = []
        plain = opened(by_strings if skips else None)
        mapped = opened(by_rows if skips else None)
        expected = outcome((row.text for row in plain), by_strings)
        texts = (rows[n] for rows in read_text_rows(mapped, group) for n in range(len(rows)))
        found = outcome(texts, by_rows)
        assert found == expected
        assert mapped.meter.num_bytes == plain.meter.num_bytes
    return found


def write(path: Path, lines: list[bytes], chance: random.Random) -> Path:
    """Join lines by either line end, sometimes with a byte order mark, without a last end."""
    ends = chance.choice(([b"\n"], [b"\r\n"], [b"\n", b"\r\n", b"\r\r\n"]))
    content = b"".join(line + chance.choice(ends) for line in lines)
    if chance.random() < 0.3:
        content = content.rstrip(b"\n")
    if chance.random() < 0.3:
        content = b"\xef\xbb\xbf" + content
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
@pytest.mark.parametrize("seed", range(60))
def test_drawn_lines_are_read_as_by_strings(
    tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    if chance.random() < 0.5:
        monkeypatch.setattr(text_rows, "_MAPPED_BYTES", 1)
    few = chance.choice((1, 4, len(JSON_LINES)))
    pool = chance.sample(JSON_LINES, few) + [JSON_LINES[0]] * chance.choice((0, 30))
    lines = [chance.choice(pool).encode() for _ in range(chance.randint(0, 60))]
    for _ in range(chance.choice((0, 0, 1, 3))):
        line = lines[chance.randrange(len(lines))] if lines else b""
        place = chance.randint(0, len(line))
        damaged = line[:place] + chance.choice(BAD_BYTES) + line[place:]
        lines.insert(chance.randint(0, len(lines)), damaged)
    path = write(tmp_path / f"rows.{kind}", lines, chance)
    options: dict[str, Any] = {"max_characters": chance.choice((None, 3, 500))}
    check_equal(path, group=chance.choice((1, 300, 1 << 24)), **options)


@pytest.mark.parametrize("line", JSON_LINES)
def test_each_kind_of_line_is_read_as_by_strings(tmp_path: Path, line: str) -> None:
    for before, behind in (("", ""), (JSON_LINES[0] + "\n", "\n" + JSON_LINES[0] + "\n")):
        path = tmp_path / "rows.jsonl"
        path.write_text(before + line + behind, encoding="utf-8", newline="")
        check_equal(path)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff\xfea\0", b"a\r", b"\0"]
)
@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_odd_files_are_read_as_by_strings(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(content)
    check_equal(path)


def test_long_files_are_read_by_several_threads_in_order(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    texts = [f"{n} é" * (n % 50) for n in range(60_000)]
    path.write_text("".join(json.dumps({"n": 1, "t": t}) + "\n" for t in texts), encoding="utf-8")
    assert check_equal(path, group=1 << 21, column="t")[0] == texts
    # One bad line far behind.
    with path.open("ab") as stream:
        stream.write(b'{"t": 1}\n{"t": "last"}\n')
    with pytest.raises(RowError, match=r"line 60001: t must be a text"):
        list(read_text_rows(open_inputs([str(path)], column="t")))


def test_other_formats_and_packed_files_are_rows_as_well(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\na\n\u4e2d\n", encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"c\nd"))
    (tmp_path / "c.txt").write_bytes(gzip.compress(b"e"))  # packed, though the name does not say so
    inputs = open_inputs([str(tmp_path)])
    rows = [rows[n] for rows in read_text_rows(inputs) for n in range(len(rows))]
    assert rows == ["a", "\u4e2d", "c", "d", "e"]


def test_places_beyond_two_gigabytes_are_places(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    far = 2**32 + 2**31
    with path.open("wb") as stream:
        stream.seek(far)
        stream.write(b"a\nb\n")
    rows = _native.TextRows()
    with path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    end, count = rows.add_lines(data, far, 100, column=None, most_bytes=100, most_characters=None)
    assert (end, count, rows[0], rows[1]) == (far + 4, 2, "a", "b")
    with pytest.raises(ValueError, match="a place in it"):
        rows.add_lines(data, far + 5, 1, column=None, most_bytes=1, most_characters=None)


def test_rows_are_indexed_as_a_sequence() -> None:
    rows = _native.TextRows()
    rows.add_text("a", 1)
    rows.add_text("\U0001f600", 4)
    assert (len(rows), rows.num_bytes, rows[0], rows[-1]) == (2, 5, "a", "\U0001f600")
    with pytest.raises(IndexError, match="there is no such row"):
        rows[2]
