"""Reads randomly damaged files of every format: ``python -m tests.inputs.damaged_inputs``.

``--cases 5000 --seed 1`` draws them. Each file is damaged at random and read twice: by the package,
and by the format's plain tool (gzip, xz, zstd; json; csv; pyarrow with its full validation). The
package must raise an error of ``encoder_engine.errors``, or give the rows that the tool gives, or
the rows of the undamaged file. Cases run in processes of their own: a crash is a finding too.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

from encoder_engine.errors import EncoderEngineError
from encoder_engine.inputs.readers import open_inputs
from tests.damage import damage, main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Rows = list[tuple[str, str | int | None]]

PLAIN = ("txt", "jsonl", "csv", "tsv")
PACKED = ("gz", "xz", "zst", "bz2")
TABLES = ("parquet", "parquet with checksums", "arrow", "arrow stream", "feather")


def draw_rows(chance: random.Random) -> list[tuple[str, int]]:
    """Draw ids and texts, some empty, some of many bytes a character."""
    letters = "ab c,;\"'\t\u00e9\u4e2d\U0001f600"
    texts = ["".join(chance.choices(letters, k=chance.randrange(30))) for _ in range(40)]
    return [(text, row) for row, text in enumerate(texts[: chance.randint(1, 40)])]


def write_plain(kind: str, rows: list[tuple[str, int]]) -> bytes:
    """Lay rows out in a format of lines."""
    if kind == "txt":
        return "".join(f"{text}\n" for text, _ in rows).encode()
    if kind == "jsonl":
        lines = (json.dumps({"id": n, "text": text}, ensure_ascii=n % 2 == 0) for text, n in rows)
        return "".join(f"{line}\n" for line in lines).encode()
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter="\t" if kind == "tsv" else ",")
    writer.writerows([("id", "text"), *((n, text) for text, n in rows)])
    return table.getvalue().encode()


def pack(kind: str, content: bytes, chance: random.Random) -> bytes:
    """Compress in one stream, or in two end to end."""
    cut = chance.randrange(len(content) + 1) if chance.random() < 0.5 else len(content)
    parts = [content[:cut], content[cut:]] if cut < len(content) else [content]
    if kind == "zst":
        command = ["zstd", "-q", "-c", "--check"]
        return b"".join(
            subprocess.run(command, input=part, stdout=subprocess.PIPE, check=True).stdout
            for part in parts
        )
    tools: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "xz": lzma.compress,
        "bz2": bz2.compress,
    }
    compress = tools[kind]
    return b"".join(compress(part) for part in parts)


def write_table(kind: str, rows: list[tuple[str, int]], path: Path, chance: random.Random) -> None:
    """Write rows as a table, in one of the encodings that its format has."""
    types = [pyarrow.string(), pyarrow.large_string()]
    if kind.startswith("arrow"):
        types.append(pyarrow.string_view())
    texts = pyarrow.array([text for text, _ in rows], chance.choice(types))
    if texts.type != pyarrow.string_view() and chance.random() < 0.3:
        texts = texts.dictionary_encode()
    table = pyarrow.table({"id": [n for _, n in rows], "text": texts})
    if kind.startswith("parquet"):
        pyarrow.parquet.write_table(
            table,
            path,
            write_page_checksum=kind.endswith("checksums"),
            compression=chance.choice(["none", "snappy", "zstd"]),
            row_group_size=chance.choice([7, 100]),
        )
    elif kind == "feather":
        pyarrow.feather.write_feather(table, path, compression=chance.choice(["lz4", "zstd"]))
    else:
        options = pyarrow.ipc.IpcWriteOptions(compression=chance.choice([None, "lz4", "zstd"]))
        new = pyarrow.ipc.new_file if kind == "arrow" else pyarrow.ipc.new_stream
        with new(str(path), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=chance.choice([5, 100]))


def read_here(path: Path, columns: dict[str, Any]) -> Rows:
    """Read by the package."""
    inputs = open_inputs([str(path)], **columns)
    return [(row.text, row.identifier) for row in inputs]


def read_plainly(path: Path, kind: str, packed: str | None) -> Rows | None:
    """Read by plain tools; None where these refuse."""
    content = path.read_bytes()
    if packed is not None:
        tool = {"gz": "gzip", "xz": "xz", "zst": "zstd", "bz2": "bzip2"}[packed]
        done = subprocess.run(
            [tool, "-q", "-dc"], input=content, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if done.returncode:
            return None
        content = done.stdout
    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    if kind == "txt":
        lines = text.split("\n")
        lines = lines[:-1] if not lines[-1] else lines
        return [(line.removesuffix("\r"), None) for line in lines]
    if kind == "jsonl":
        records = [json.loads(line) for line in text.split("\n") if line.strip()]
        return [(record["text"], record["id"]) for record in records]
    delimiter = "\t" if kind == "tsv" else ","
    header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number, place = header.index("id"), header.index("text")
    return [(row[place], row[number]) for row in rows if row]


def read_validated(path: Path, kind: str) -> Rows:
    """Read by pyarrow, with all it can check."""
    if kind.startswith("parquet"):
        table = pyarrow.parquet.read_table(str(path), page_checksum_verification=True)
    else:
        content = pyarrow.BufferReader(path.read_bytes())
        try:
            table = pyarrow.ipc.open_file(content).read_all()
        except pyarrow.ArrowInvalid:
            content.seek(0)
            table = pyarrow.ipc.open_stream(content).read_all()
    texts, numbers = table["text"], table["id"]
    if pyarrow.types.is_dictionary(texts.type):
        # An entry that no row names may be anything.
        texts = texts.cast(texts.type.value_type)
    for column in (texts, numbers):
        column.validate(full=True)
    texts, numbers = texts.to_pylist(), numbers.to_pylist()
    return list(zip(texts, numbers, strict=True))


def run_case(name: str, folder: Path) -> str:
    """Run the case of this name; return "equal", "refused", or what is wrong."""
    chance = random.Random(name)
    rows = draw_rows(chance)
    kind = chance.choice([*PLAIN, *TABLES])
    packed = chance.choice([None, *PACKED]) if kind in PLAIN else None
    ending = "parquet" if kind.startswith("parquet") else kind.partition(" ")[0]
    path = folder / f"case.{ending}{'' if packed is None else '.' + packed}"
    if kind in PLAIN:
        content = write_plain(kind, rows)
        path.write_bytes(content if packed is None else pack(packed, content, chance))
    else:
        write_table(kind, rows, path, chance)
    columns: dict[str, Any] = {} if kind == "txt" else {"id_column": "id"}
    whole = read_here(path, columns)
    path.write_bytes(damage(path.read_bytes(), chance))
    try:
        found = read_here(path, columns)
    except EncoderEngineError:
        return "refused"
    except Exception as error:
        return f"{kind} {packed}: {type(error).__name__}: {error}"
    if packed is not None and found == whole:
        return "equal"
    try:
        expected = read_plainly(path, kind, packed) if kind in PLAIN else read_validated(path, kind)
    except Exception as error:
        return f"{kind} {packed}: read here, and refused by the plain reader: {error}"
    if expected is None:
        return f"{kind} {packed}: unpacked here, and refused by the tool"
    return "equal" if found == expected else f"{kind} {packed}: other rows than the plain reader's"


if __name__ == "__main__":
    sys.exit(main(run_case, __doc__))
