"""What is embedded by mistake, as files: each with the error that it is and the words it gets.

A case's ``files`` lie in an empty folder, where ``encoder-engine embed`` is given its ``arguments``
(or the first file); large content is made when it is asked for. ``listed``: what ``--on-error
skip`` leaves out of them, by line or row and a word of the reason; None: the whole cannot be read,
so skipping does not help.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from encoder_engine.errors import ReadError, RowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.errors import EncoderEngineError


@dataclass(frozen=True, kw_only=True)
class BadInput:
    """A case of the catalogue."""

    files: dict[str, bytes | Callable[[], bytes]]
    words: str
    error: type[EncoderEngineError] = ReadError
    options: str = ""
    listed: tuple[tuple[int, str], ...] | None = None


def bad_rows(
    name: str, content: bytes | Callable[[], bytes], *listed: tuple[int, str], options: str = ""
) -> BadInput:
    """Make a case of rows that can be skipped; the first of them is the error."""
    words, error = listed[0][1], RowError
    return BadInput(files={name: content}, words=words, error=error, options=options, listed=listed)


def broken(name: str, content: bytes, words: str, options: str = "") -> BadInput:
    """Make a case of a file that cannot be read from some place on."""
    return BadInput(files={name: content}, words=words, options=options)


def jsonl(*rows: Any) -> bytes:
    """Write rows as lines of JSON."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """Write columns as a Parquet file."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, **options)
    return sink.getvalue()


def arrow(columns: dict[str, Any], *, stream: bool = False) -> bytes:
    """Write columns as an Arrow IPC file or stream."""
    table, sink = pyarrow.table(columns), io.BytesIO()
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return sink.getvalue()


def zstd(content: bytes) -> bytes:
    """Compress."""
    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


def flipped(content: bytes, place: int) -> bytes:
    """Change 16 bytes."""
    return (
        content[:place]
        + bytes(255 - byte for byte in content[place : place + 16])
        + (content[place + 16 :])
    )


LINES = jsonl(*({"text": f"text {row} {row * 7919 % 1009}"} for row in range(3000)))
GZ, XZ, ZST = gzip.compress(LINES, mtime=0), lzma.compress(LINES), zstd(LINES)
ROWS = {"text": [f"text {row}" for row in range(200)], "id": list(range(200))}
PARQUET, ARROW, STREAM = parquet(ROWS), arrow(ROWS), arrow(ROWS, stream=True)
NOT_UTF_8 = pyarrow.array([b"a", b"\xff"]).view(pyarrow.string())
ID = "--id-column id"

ARCHIVES: dict[str, BadInput] = {
    "gzip cut short": broken("a.jsonl.gz", GZ[:-500], "cannot be unpacked"),
    "gzip cut within its trailer": broken("a.jsonl.gz", GZ[:-3], "cannot be unpacked"),
    "gzip with a wrong checksum": broken("a.jsonl.gz", flipped(GZ, len(GZ) - 8), "unpacked"),
    "gzip damaged within": broken(
        "a.jsonl.gz", flipped(GZ, 3000), "cannot be unpacked|broken JSON|not UTF-8|control"
    ),
    "gzip of a header alone": broken("a.jsonl.gz", GZ[:10], "cannot be unpacked"),
    "gzip followed by something else": broken("a.jsonl.gz", GZ + b"garbage", "cannot be unpacked"),
    "a second gzip member cut short": broken("a.jsonl.gz", GZ + GZ[:200], "cannot be unpacked"),
    "text called gzip": broken("a.jsonl.gz", b"plain", "cannot be unpacked"),
    "xz called gzip": broken("a.jsonl.gz", XZ, "cannot be unpacked"),
    "xz cut short": broken("a.jsonl.xz", XZ[:-100], "cannot be unpacked"),
    "xz damaged within": broken("a.jsonl.xz", flipped(XZ, 2000), "cannot be unpacked"),
    "text called xz": broken("a.txt.xz", b"plain", "cannot be unpacked"),
    "zstd cut short": broken("a.jsonl.zst", ZST[:-100], "cannot be unpacked|broken JSON"),
    # A flip within would give other texts, and nothing could tell: pyarrow writes no checksums.
    "zstd with a damaged header": broken("a.jsonl.zst", flipped(ZST, 4), "cannot be unpacked"),
    "text called zstd": broken("a.txt.zst", b"plain", "cannot be unpacked"),
    "a parquet file in gzip": broken("a.parquet.gz", gzip.compress(PARQUET), "compressed inside"),
}
TABLES: dict[str, BadInput] = {
    "a parquet of no bytes": broken("a.parquet", b"", "damaged"),
    "a parquet of its magic alone": broken("a.parquet", b"PAR1PAR1", "damaged"),
    "parquet cut within its footer": broken("a.parquet", PARQUET[:-20], "damaged"),
    "parquet cut in half": broken("a.parquet", PARQUET[: len(PARQUET) // 2], "damaged"),
    "parquet without its first half": broken(
        "a.parquet", PARQUET[:4] + PARQUET[len(PARQUET) // 2 :], "damaged"
    ),
    "parquet with a damaged footer": broken(
        "a.parquet", flipped(PARQUET, len(PARQUET) - 200), "damaged|no single column"
    ),
    "parquet with damaged pages": broken("a.parquet", flipped(PARQUET, 300), "damaged|not UTF-8"),
    "CSV called parquet": broken("a.parquet", b"text\na\n", "damaged"),
    "parquet without the column": broken("a.parquet", parquet({"body": ["a"]}), "there are body"),
    "parquet of numbers": broken("a.parquet", parquet({"text": [1, 2]}), "int64, expected string"),
    "parquet of lists": broken("a.parquet", parquet({"text": [["a"]]}), "list.*expected string"),
    "parquet of bytes": broken("a.parquet", parquet({"text": [b"a"]}), "binary, expected string"),
    "parquet of structs": broken(
        "a.parquet", parquet({"text": [{"body": "a"}]}), "struct.*expected string"
    ),
    "parquet of nothing but nulls": broken(
        "a.parquet", parquet({"text": pyarrow.nulls(3)}), "null, expected string"
    ),
    "parquet without rows": bad_rows(
        "a.parquet", parquet({"text": pyarrow.array([], pyarrow.string())}), (0, "holds no rows")
    ),
    "parquet without the ids": broken("a.parquet", parquet({"text": ["a"]}), "'id'", ID),
    "parquet with ids of floats": broken(
        "a.parquet", parquet({"text": ["a"], "id": [0.5]}), "double, expected string or int", ID
    ),
    "parquet with a null": bad_rows(
        "a.parquet", parquet({"text": ["a", None]}), (2, "text is null")
    ),
    "parquet with an id that is null": bad_rows(
        "a.parquet", parquet({"text": ["a", "b"], "id": [None, 1]}), (1, "id is null"), options=ID
    ),
    "parquet with bytes that are not UTF-8": bad_rows(
        "a.parquet", parquet({"text": NOT_UTF_8}), (2, "not UTF-8")
    ),
    "parquet with ids that are not UTF-8": bad_rows(
        "a.parquet", parquet({"text": ["a", "b"], "id": NOT_UTF_8}), (2, "not UTF-8"), options=ID
    ),
    "parquet with an id twice": bad_rows(
        "a.parquet",
        parquet({"text": ["a", "b"], "id": [7, 7]}),
        (2, "came before"),
        options=f"{ID} --unique-ids",
    ),
    "an Arrow file of no bytes": broken("a.arrow", b"", "damaged"),
    "text called Arrow": broken("a.arrow", b"ARROW1 is this none", "damaged"),
    "an Arrow file cut short": broken("a.arrow", ARROW[:-30], "damaged"),
    "an Arrow file cut in half": broken("a.arrow", ARROW[: len(ARROW) // 2], "damaged"),
    "an Arrow stream cut short": broken("a.ipc", STREAM[: len(STREAM) // 2], "damaged"),
    "Arrow without the column": broken("a.arrow", arrow({"body": ["a"]}), "there are body"),
    "Arrow of numbers": broken("a.feather", arrow({"text": [1.5]}), "double, expected string"),
    "Arrow with a null": bad_rows("a.arrow", arrow({"text": [None, "a"]}), (1, "text is null")),
    "an Arrow stream with a null": bad_rows(
        "a.ipc", arrow({"text": ["a", None]}, stream=True), (2, "text is null")
    ),
}
LINE_FILES: dict[str, BadInput] = {
    "no bytes": bad_rows("a.txt", b"", (0, "holds no rows")),
    "latin-1": bad_rows("a.txt", b"one\ncaf\xe9\n", (2, "0xE9.* is not UTF-8")),
    "mixed encodings": bad_rows(
        "a.txt", b"\xe9\nthr\xc3\xa9\n\x93quoted\x94\n", (1, "0xE9"), (3, "0x93")
    ),
    "Shift-JIS": bad_rows("a.txt", "a\n日本".encode("shift-jis"), (2, "not UTF-8")),
    "UTF-8 cut within a character": bad_rows("a.txt", "a\né".encode()[:-1], (2, "0xC3")),
    "an overlong slash": bad_rows("a.txt", b"a\n\xc0\xaf\n", (2, "0xC0")),
    "surrogates encoded as UTF-8": bad_rows("a.txt", b"\xed\xa0\xbd\xed\xb8\x80\nb\n", (1, "0xED")),
    "UTF-16, little-endian": broken("a.txt", "one\ntwo\n".encode("utf-16"), "UTF-16"),
    "UTF-16, big-endian": broken("a.txt", b"\xfe\xff" + "one\n".encode("utf-16-be"), "UTF-16"),
    "UTF-16 without a mark": broken("a.txt", "é\n".encode("utf-16-be"), "UTF-16"),
    "UTF-32": broken("a.txt", "one\n".encode("utf-32"), "UTF-16"),
    "a text that is too long": bad_rows(
        "a.txt", b"long " * 9 + b"\nb\n", (1, "45 characters"), options="--max-characters 20"
    ),
    "a line of 100 megabytes": bad_rows(
        "a.txt",
        lambda: b"word " * 20_000_000 + b"\nb\n",
        (1, "longer than 1048576 bytes"),
        options="--max-characters 1000",
    ),
}
JSON_LINES: dict[str, BadInput] = {
    "JSON: null": bad_rows("a.jsonl", jsonl({"text": None}, {"text": "b"}), (1, "text is null")),
    "JSON: a number": bad_rows("a.jsonl", jsonl({"text": "a"}, {"text": 3}), (2, "got int 3")),
    "JSON: NaN": bad_rows("a.jsonl", b'{"text": NaN}\n{"text": "b"}\n', (1, "got float nan")),
    "JSON: true": bad_rows("a.jsonl", jsonl({"text": True}, {"text": "b"}), (1, "got bool")),
    "JSON: a list": bad_rows("a.jsonl", jsonl({"text": ["a"]}, {"text": "b"}), (1, "got list")),
    "JSON: an object": bad_rows("a.jsonl", jsonl({"text": {}}, {"text": "b"}), (1, "got dict")),
    "JSON: no column": bad_rows("a.jsonl", jsonl({"body": "a"}, {"text": "b"}), (1, "no column")),
    "JSON: a column misspelt": bad_rows(
        "a.jsonl", jsonl({"txet": "a"}, {"text": "b"}), (1, "did you mean 'txet'")
    ),
    "JSON: an empty object": bad_rows("a.jsonl", jsonl({}, {"text": "b"}), (1, "there are none")),
    "JSON: a list of rows": bad_rows(
        "a.jsonl", b'[{"text": "a"}]\n{"text": "b"}\n', (1, "must be a JSON object, got list")
    ),
    "JSON: a text alone": bad_rows("a.jsonl", b'"a"\n{"text": "b"}\n', (1, "object, got str")),
    "JSON over several lines": bad_rows(
        "a.jsonl",
        b'{\n"text": "a"\n}\n{"text": "b"}\n',
        (1, "broken JSON"),
        (2, "broken JSON"),
        (3, "broken JSON"),
    ),
    "JSON: never closed": bad_rows("a.jsonl", b'{"text": "b"}\n{"text": "a\n', (2, "broken JSON")),
    "JSON: a comma too many": bad_rows(
        "a.jsonl", b'{"text": "a",}\n{"text": "b"}\n', (1, "broken JSON")
    ),
    "JSON: single quotes": bad_rows(
        "a.jsonl", b"{'text': 'a'}\n" + jsonl({"text": "b"}), (1, "broken JSON")
    ),
    "JSON: two rows on a line": bad_rows(
        "a.jsonl", b'{"text": "a"} {"text": "b"}\n{"text": "c"}\n', (1, "broken JSON")
    ),
    "JSON: a tab within a text": bad_rows(
        "a.jsonl", b'{"text": "a\tb"}\n{"text": "c"}\n', (1, "control character")
    ),
    "JSON: an empty line": bad_rows(
        "a.jsonl", b'{"text": "a"}\n\n{"text": "b"}\n', (2, "blank, .*; remove it")
    ),
    "JSON: a key twice": bad_rows(
        "a.jsonl", b'{"text": "a", "text": "b"}\n{"text": "c"}\n', (1, "occurs twice")
    ),
    "JSON: nested too deep": bad_rows(
        "a.jsonl", b'{"text": ' + b"[" * 100_000 + b'\n{"text": "b"}\n', (1, "nested too deep")
    ),
    "JSON: a number of 10,000 digits": bad_rows(
        "a.jsonl", b'{"text": "a", "n": ' + b"9" * 10_000 + b'}\n{"text": "b"}\n', (1, "cannot be")
    ),
    "JSON: half a pair of surrogates": bad_rows(
        "a.jsonl", b'{"text": "\\ud83d"}\n{"text": "b"}\n', (1, r"lone surrogate U\+D83D")
    ),
    "JSON in latin-1": bad_rows("a.jsonl", b'{"text": "\xe9"}\n{"text": "b"}\n', (1, "not UTF-8")),
    "JSON in UTF-16": broken("a.jsonl", '{"text": "a"}\n'.encode("utf-16"), "UTF-16"),
    "CSV called JSON": bad_rows("a.jsonl", b'text\n{"text": "b"}\n', (1, "broken JSON")),
    "JSON: no id": bad_rows(
        "a.jsonl", jsonl({"text": "a"}, {"text": "b", "id": 1}), (1, "no column 'id'"), options=ID
    ),
    **{
        f"JSON: an id that is {kind}": bad_rows(
            "a.jsonl",
            jsonl({"text": "a", "id": value}, {"text": "b", "id": 1}),
            (1, words),
            options=ID,
        )
        for kind, value, words in (
            ("null", None, "id is null"),
            ("a float", 0.5, "got float"),
            ("true", True, "got bool"),
            ("a list", [1], "got list"),
            ("two lines", "a\nb", "line break"),
            ("half a pair of surrogates", "\ud83d", "lone surrogate"),
        )
    },
    "JSON: an id twice, once as a text": bad_rows(
        "a.jsonl",
        jsonl({"text": "a", "id": 7}, {"text": "b", "id": "7"}, {"text": "c", "id": 8}),
        (2, "'7' came before"),
        options=f"{ID} --unique-ids",
    ),
}
SEPARATED: dict[str, BadInput] = {
    "CSV of no bytes": bad_rows("a.csv", b"", (0, "holds no rows")),
    "CSV of a header alone": bad_rows("a.csv", b"text,id\n", (0, "holds no rows")),
    "CSV without the column": broken("a.csv", b"body\na\n", "no column 'text'"),
    "CSV with a column misspelt": broken("a.csv", b"Text\na\n", "did you mean 'Text'"),
    "CSV by semicolons": broken("a.csv", b"id;text\n1;a\n", "separated by ';'"),
    "TSV by commas": broken("a.tsv", b"id,text\n1,a\n", "separated by ','"),
    "CSV without a header": broken("a.csv", b"a text,1\nanother,2\n", "there are a text, 1"),
    "CSV that names the column twice": broken("a.csv", b"text,text\na,b\n", "2 times"),
    "CSV without the ids": broken("a.csv", b"text\na\n", "no column 'id'", ID),
    "a CSV record of too few fields": bad_rows("a.csv", b"text,n\na\nb,1\n", (2, "1 fields")),
    "a CSV record of too many fields": bad_rows("a.csv", b"text,n\na,b,1\nb,1\n", (2, "3 fields")),
    "a CSV quote never closed": broken("a.csv", b'text\n"a\nb\n', "broken quoting"),
    "CSV with text after a quote": broken("a.csv", b'text\n"a"b\nc\n', "broken quoting"),
    "CSV with a blank line within": bad_rows("a.csv", b"text,n\na,1\n\nb,2\n", (3, "blank")),
    "CSV in latin-1": bad_rows("a.csv", b"text\n\xe9\nb\n", (2, "0xE9")),
    "a CSV header in latin-1": broken("a.csv", b"text,pr\xe9nom\na,b\n", "the header is not UTF-8"),
    "CSV in UTF-16": broken("a.csv", "text\na\n".encode("utf-16"), "UTF-16"),
    "a CSV id twice": bad_rows(
        "a.csv", b"text,id\na,1\nb,1\n", (3, "came before"), options=f"{ID} --unique-ids"
    ),
    "a CSV id of two lines": bad_rows(
        "a.csv", b'text,id\na,"1\n2"\nb,3\n', (3, "line break"), options=ID
    ),
}
CATALOGUE = ARCHIVES | TABLES | LINE_FILES | JSON_LINES | SEPARATED
