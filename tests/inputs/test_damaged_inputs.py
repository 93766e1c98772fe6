"""Damaged inputs: no crash, no foreign memory, no rows lost without a word."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.errors import MissingDependencyError, ReadError, RowError
from encoder_engine.inputs.readers import open_inputs
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def texts_of(path: Path, **options: Any) -> list[str]:
    return [row.text for row in open_inputs([str(path)], **options)]


ONE, TWO = lzma.compress(b"one\n"), lzma.compress(b"two\n")


@pytest.mark.parametrize(
    "content",
    [ONE + TWO, ONE + bytes(4) + TWO + bytes(8), ONE + lzma.compress(b"") + TWO],
    ids=["end to end", "padded", "an empty one between"],
)
def test_streams_of_an_xz_file_are_read_as_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt.xz").write_bytes(content)
    assert texts_of(tmp_path / "a.txt.xz") == ["one", "two"]


@pytest.mark.parametrize(
    "tail",
    [b"\xfe" + TWO[1:], TWO[:5] + b"?" + TWO[6:], TWO[:-3], TWO[:4], b"garbage", bytes(3)],
    ids=["magic", "header", "cut short", "cut in the header", "no stream", "3 null bytes"],
)
def test_what_follows_an_xz_stream_and_is_none_is_refused(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "a.txt.xz").write_bytes(ONE + tail)
    with pytest.raises(ReadError, match="cannot be unpacked"):
        texts_of(tmp_path / "a.txt.xz")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("offset", [2**20, 2**31 - 1, -5, 1])
def test_arrow_offsets_that_lead_elsewhere_are_refused(
    tmp_path: Path, offset: int, stream: bool
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.ipc as ipc

    offsets = np.array([0, 4, 8, 12], np.int32)
    buffers = [None, pyarrow.py_buffer(offsets.tobytes()), pyarrow.py_buffer(b"aaaabbbbcccc")]
    texts = pyarrow.Array.from_buffers(pyarrow.string(), 3, buffers)
    table = pyarrow.table({"text": texts})
    path = tmp_path / "a.arrow"
    with (ipc.new_stream if stream else ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table)
    assert texts_of(path) == ["aaaa", "bbbb", "cccc"]
    damaged = offsets.copy()
    damaged[2] = offset
    path.write_bytes(path.read_bytes().replace(offsets.tobytes(), damaged.tobytes()))
    with pytest.raises(ReadError, match="damaged"):
        texts_of(path)


def test_arrow_indices_beyond_their_dictionary_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.ipc as ipc

    indices = np.array([0, 1, 0, 1, 1, 0, 1], np.int32)
    texts = pyarrow.DictionaryArray.from_arrays(indices, ["a", "b"])
    path = tmp_path / "a.arrow"
    table = pyarrow.table({"text": texts})
    with ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    assert texts_of(path) == list("ababbab")
    damaged = indices.copy()
    damaged[3] = 70_000
    path.write_bytes(path.read_bytes().replace(indices.tobytes(), damaged.tobytes()))
    with pytest.raises(ReadError, match="indices from 0 to 70000"):
        texts_of(path)


def test_a_parquet_page_that_differs_from_its_checksum_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["abcdefgh", "ijklmnop"]})
    pyarrow.parquet.write_table(
        table,
        path,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    content = path.read_bytes()
    place = content.index(b"ijklmnop")
    path.write_bytes(content[:place] + b"I" + content[place + 1 :])
    with pytest.raises(ReadError, match="damaged"):
        texts_of(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv"])
def test_a_line_beyond_the_limit_is_read_past_without_holding_it(tmp_path: Path, name: str) -> None:
    """A compressed line of 1.5 GB took 1.5 GB, whatever ``max_characters`` said."""
    line = b"x" * 70_000_000
    content = {
        "a.jsonl": b'{"text": "%s"}\n{"text": "b"}\n' % line,
        "a.csv": b"text\n%s\nb\n" % line,
    }.get(name, line + b"\nb\n")
    path = tmp_path / name
    path.write_bytes(gzip.compress(content, 1) if name.endswith("gz") else content)
    with pytest.raises(ReadError, match="longer than") as caught:
        texts_of(path, max_characters=100)
    bad: list[RowError] = []
    inputs = open_inputs([str(path)], max_characters=100).skipping(bad.append)
    if name == "a.csv":
        # Whether the record ends with the line depends on what was not read.
        assert not isinstance(caught.value, RowError)
        return
    assert [row.text for row in inputs] == ["b"]
    assert [error.number for error in bad] == [1]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("beyond", [0, 1, 2, 3, 4])
def test_a_byte_order_mark_changes_nothing_at_the_limit(
    tmp_path: Path, mark: bytes, beyond: int
) -> None:
    """A first line beyond the limit was cut behind a mark, and its end became a row."""
    path = tmp_path / "a.txt"
    for end in (b"\nsecond\n", b"\n", b""):
        path.write_bytes(mark + b"a" * (2**20 - len(end[:1]) + beyond) + end)
        bad: list[RowError] = []
        inputs = open_inputs([str(path)], max_characters=1000).skipping(bad.append)
        assert [row.text for row in inputs] == (["second"] if b"second" in end else [])
        told = "longer than 1048576 bytes" if beyond else "characters, the limit is 1000"
        assert [told in str(error) for error in bad] == [True]


@pytest.mark.parametrize("ending", ["gz", "xz", "zst"])
def test_a_compressed_file_of_no_bytes_is_refused(tmp_path: Path, ending: str) -> None:
    if ending == "zst":
        pytest.importorskip("pyarrow")
    (tmp_path / "a.txt").write_bytes(b"one\n")
    (tmp_path / f"b.txt.{ending}").write_bytes(b"")
    with pytest.raises(ReadError, match="file is empty"):
        texts_of(tmp_path)


def test_a_blank_line_of_a_table_is_not_to_be_removed_by_a_pattern(tmp_path: Path) -> None:
    """Within quotes a blank line belongs to a text."""
    (tmp_path / "a.csv").write_bytes(b'text\n"a\n\nb"\n\nc\n')
    with pytest.raises(ReadError, match=r"line 5: blank, with records after it; remove it$"):
        texts_of(tmp_path / "a.csv")


def test_a_csv_record_over_many_lines_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\nok\n"never closed\n' + (b"long line " * 100 + b"\n") * 80_000)
    with pytest.raises(ReadError, match=r"begins on line 3 is longer than .* a quote"):
        texts_of(path, max_characters=100)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_line_takes_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(bytes(200_000_000).replace(b"\0", b"x"), 1))
    script = (
        "import sys\n"
        "from benchmarks.measuring.memory import process_peak\n"
        "from encoder_engine.inputs.readers import open_inputs\n"
        "before = process_peak().mib\n"
        "rows = open_inputs([sys.argv[1]], max_characters=1000).skipping(lambda error: None)\n"
        "assert list(rows) == []\n"
        "print(process_peak().mib - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert float(done.stdout) < 20


@pytest.mark.parametrize("address", ["s3://bucket/*.parquet", "https://example.invalid/x.jsonl"])
def test_addresses_that_cannot_be_read_are_named(address: str) -> None:
    with pytest.raises((ReadError, MissingDependencyError), match=re.escape(address)):
        open_inputs([address])


def test_errors_of_lines_name_the_place_in_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a", "b" 1}\n')
    with pytest.raises(ReadError, match="character 19"):
        texts_of(path)
    path.write_bytes(b'{"text": "a"\n')
    with pytest.raises(ReadError, match="character 13"):
        texts_of(path)
    path = tmp_path / "a.csv"
    path.write_bytes(b'text\n"opened\nhere\n')
    with pytest.raises(ReadError, match="record that begins on line 2"):
        texts_of(path)


@pytest.mark.slow
def test_randomly_damaged_files_are_read_right_or_refused() -> None:
    pytest.importorskip("pyarrow.parquet")
    for tool in ("xz", "zstd", "gzip"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; it is what .{tool} files are compared by")
    from tests import damage
    from tests.inputs.damaged_inputs import run_case

    counts, findings = damage.run(run_case, 150, seed=7)
    assert findings == []
    assert counts["equal"] > 10
    assert counts["refused"] > 50
