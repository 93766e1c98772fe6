"""Stores that grow: equal to one made at once, whole for every reader, whatever a kill leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.cli import main
from encoder_engine.embedding import Embedder, MultiVectorEmbedder, SparseEmbedder
from encoder_engine.errors import InputError, ReadError, ResumeError
from encoder_engine.kinds.kind import Kind
from encoder_engine.models import MaskedLM
from encoder_engine.vectors import load_vectors
from encoder_engine.vectors.hybrid import check_same_rows
from encoder_engine.vectors.origins import read_texts
from tests import ROOT
from tests.embedding.tiny_model import write_head_directory
from tests.jobs.append_kills import state

if TYPE_CHECKING:
    from pathlib import Path

pyarrow = pytest.importorskip("pyarrow")
Rows = list[tuple[str, str]]

# What the folder of inputs holds on each day: texts by id, by file.
DAYS: list[dict[str, Rows]] = [
    {
        "a.jsonl": [(f"a{n}", f"text {n}") for n in range(30)],
        "b.jsonl": [(f"b{n}", f"row {n}") for n in range(25)],
        "gone.jsonl": [(f"g{n}", f"old text {n}") for n in range(12)],
    },
    {  # a grows and its lines come twice, b changes and loses rows, gone goes, c is new
        "a.jsonl": [(f"a{n}", f"text {n % 36}") for n in range(40)],
        "b.jsonl": [(f"b{n}", f"row {n}" if n % 5 else f"changed {n}") for n in range(3, 25)],
        "c.jsonl": [(f"c{n}", f"query {n}") for n in range(33)],
    },
    {
        "a.jsonl": [(f"a{n}", f"text {n % 36}") for n in range(41)],
        "b.jsonl": [(f"b{n}", f"row {n}" if n % 2 else f"again {n}") for n in range(3, 20)],
        "c.jsonl": [(f"c{n}", f"query {n}") for n in range(33)],
        "0.jsonl": [(f"z{n}", f"passage {n}") for n in range(7)],
    },
]


def write_day(folder: Path, files: dict[str, Rows]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, rows in files.items():
        lines = [json.dumps({"id": i, "text": text, "n": len(text)}) for i, text in rows]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def rows_of(folder: Path) -> list[tuple[Any, bytes]]:
    """Return ids and results of a store, in an order that does not depend on the store's."""
    stored = load_vectors(folder)
    if stored.kind == "sparse":
        sparse = stored.sparse
        bounds = zip(sparse.indptr[:-1], sparse.indptr[1:], strict=True)
        results = [sparse.indices[i:j].tobytes() + sparse.values[i:j].tobytes() for i, j in bounds]
    elif stored.kind == "tokens":
        tokens = stored.tokens
        bounds = zip(tokens.cu_seqlens[:-1], tokens.cu_seqlens[1:], strict=True)
        results = [tokens.ids[i:j].tobytes() + tokens.vectors[i:j].tobytes() for i, j in bounds]
    else:
        results = [row.tobytes() for row in stored.vectors]
    return sorted(zip(stored.ids or [0] * stored.rows, results, strict=True))


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head_directory(tmp_path_factory.mktemp("masked"), MaskedLM)


@pytest.fixture
def embedder(request: pytest.FixtureRequest, tiny: Embedder, tiny_directory: Path) -> Any:
    if request.param == "sparse":
        return SparseEmbedder.from_pretrained(request.getfixturevalue("masked"))
    if request.param == "tokens":
        projection = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
        embedder = Embedder.from_pretrained(tiny_directory, device="cpu")
        return MultiVectorEmbedder(embedder, projection, skipped=[2, 3])
    return tiny


CASES = [
    ("dense", "npy", 1),
    ("dense", "parquet", 1),
    ("dense", "arrow", 1),
    ("sparse", "parquet", 1),
    ("tokens", "arrow", 1),
    pytest.param("dense", "npy", 2, marks=pytest.mark.slow),
    pytest.param("sparse", "parquet", 2, marks=pytest.mark.exhaustive),
]


@pytest.mark.slow
@pytest.mark.parametrize("shard_rows", [None, 17])
@pytest.mark.parametrize("id_column", ["id", None])
@pytest.mark.parametrize(("embedder", "shard_format", "workers"), CASES, indirect=["embedder"])
def test_two_days_of_a_changing_folder_equal_a_store_made_at_once(
    embedder: Any,
    tmp_path: Path,
    shard_format: str,
    workers: int,
    id_column: str | None,
    shard_rows: int | None,
) -> None:
    options = {"id_column": id_column, "shard_format": shard_format, "shard_rows": shard_rows}
    for day, files in enumerate(DAYS):
        source = write_day(tmp_path / "in", files)
        summary = embedder.encode_dataset(
            source, tmp_path / "out", append=True, delete_missing=True, workers=workers, **options
        )
        at_once = tmp_path / f"at-once-{day}"
        embedder.encode_dataset(source, at_once, **options)
        assert rows_of(tmp_path / "out") == rows_of(at_once)
        assert summary.rows == sum(map(len, files.values()))
        assert load_vectors(tmp_path / "out").generation == day + 1
        if shard_format == "parquet":
            read = pyarrow.parquet.read_table(tmp_path / "out")
            assert read.num_rows == summary.rows
    before = state(tmp_path / "out")
    summary = embedder.encode_dataset(
        source, tmp_path / "out", append=True, delete_missing=True, **options
    )
    assert (summary.growth, summary.resumed_rows) == (
        {"generation": 3, "added": 0, "replaced": 0, "dropped": 0},
        summary.rows,
    )
    assert state(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out"]


def test_rows_at_the_end_come_in_the_order_of_the_inputs(tiny: Embedder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", "utf-8")
    tiny.encode_dataset(tmp_path / "a.txt", tmp_path / "out/")
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n", "utf-8")
    (tmp_path / "b.txt").write_text("two\ntwo\nfour\n", "utf-8")
    both = [tmp_path / "a.txt", tmp_path / "b.txt"]
    summary = tiny.encode_dataset(both, tmp_path / "out/", append=True)
    assert summary.growth == {"generation": 2, "added": 4, "replaced": 0, "dropped": 0}
    stored = load_vectors(tmp_path / "out")
    expected = tiny.encode(["one", "two", "three", "two", "two", "four"])
    np.testing.assert_array_equal(stored.vectors, expected)
    assert stored.manifest is not None
    assert stored.manifest["inputs"] == [str(path) for path in both]
    # Alone, a file that is known adds what it has more, and nothing is dropped without a word.
    (tmp_path / "b.txt").write_text("four\nfive\n", "utf-8")
    summary = tiny.encode_dataset(tmp_path / "b.txt", tmp_path / "out/", append=True)
    assert summary.growth == {"generation": 3, "added": 1, "replaced": 0, "dropped": 0}
    found = load_vectors(tmp_path / "out").vectors
    np.testing.assert_array_equal(found, np.concatenate([expected, tiny.encode(["five"])]))


def test_only_new_and_changed_rows_are_embedded(
    tiny: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"id_column": "id", "shard_rows": 20}
    tiny.encode_dataset(write_day(tmp_path / "in", DAYS[0]), tmp_path / "out", **options)
    first = (tmp_path / "out" / "part-00000.npy").stat()
    embedded: list[str] = []
    tokenize = Kind.tokenize_window

    def note(self: Kind, texts: list[str], *rest: Any) -> Any:
        embedded.extend(texts)
        return tokenize(self, texts, *rest)

    monkeypatch.setattr(Kind, "tokenize_window", note)
    files = {**DAYS[0], "b.jsonl": [*DAYS[0]["b.jsonl"][1:], ("new", "a text"), ("b0", "other")]}
    tiny.encode_dataset(write_day(tmp_path / "in", files), tmp_path / "out", append=True, **options)
    assert embedded == ["a text", "other"]
    assert load_vectors(tmp_path / "out").ids[-2:] == ["new", "b0"]  # type: ignore[index]
    # A shard without a change is not written again.
    assert (tmp_path / "out" / "part-00000.npy").stat().st_ino == first.st_ino


def test_small_appends_are_folded_into_one_shard(tiny: Embedder, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"text {number}\nrow\n", "utf-8")
        tiny.encode_dataset(tmp_path / f"{number}.txt", tmp_path / "out", shard_rows=5, append=True)
    sizes = [len(np.load(path)) for path in sorted((tmp_path / "out").glob("part-*.npy"))]
    assert sizes == [4, 4, 4]
    texts = [text for number in range(6) for text in (f"text {number}", "row")]
    np.testing.assert_array_equal(load_vectors(tmp_path / "out").vectors, tiny.encode(texts))


def test_an_open_reader_finds_its_generation_or_says_that_it_is_gone(
    tiny: Embedder, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"id_column": "id", "shard_rows": 20}
    tiny.encode_dataset(write_day(tmp_path / "in", DAYS[0]), tmp_path / "out", **options)
    before = load_vectors(tmp_path / "out")
    expected = load_vectors(tmp_path / "out").vectors
    blocks = before.blocks()
    found = [next(blocks)]
    write_day(tmp_path / "in", DAYS[0] | {"z.jsonl": [("z", "a text")]})
    tiny.encode_dataset(tmp_path / "in", tmp_path / "out", append=True, **options)
    found += [next(blocks), next(blocks)]  # these shards have not changed
    np.testing.assert_array_equal(np.concatenate(found), expected[:60])
    with pytest.raises(ReadError, match="was written to since it was opened; open it again"):
        next(blocks)


def test_a_reader_whose_shard_an_append_removed_says_to_open_it_again(
    tiny: Embedder, tmp_path: Path
) -> None:
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(f"text {number}\nrow\n", "utf-8")
    options: dict[str, Any] = {"shard_rows": 2}
    tiny.encode_dataset([tmp_path / "0.txt", tmp_path / "1.txt"], tmp_path / "out", **options)
    opened = load_vectors(tmp_path / "out")
    options |= {"append": True, "delete_missing": True}
    tiny.encode_dataset(tmp_path / "0.txt", tmp_path / "out", **options)
    (kept,) = (tmp_path / "out").glob("part-*.npy")
    with pytest.raises(ReadError, match="was written to since it was opened; open it again"):
        list(opened.blocks())
    opened = load_vectors(tmp_path / "out")
    kept.unlink()
    with pytest.raises(ReadError, match="is missing; copy it again"):
        list(opened.blocks())


def test_a_stopped_append_goes_on_and_leaves_the_store_alone(
    tiny: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"id_column": "id", "shard_rows": 10}
    tiny.encode_dataset(write_day(tmp_path / "in", DAYS[0]), tmp_path / "out", **options)
    before = state(tmp_path / "out")
    write_day(tmp_path / "in", DAYS[1])
    from encoder_engine.jobs import growing_folder

    def stop(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(growing_folder, "exchange_folders", stop)
    with pytest.raises(KeyboardInterrupt):
        tiny.encode_dataset(tmp_path / "in", tmp_path / "out", append=True, **options)
    assert state(tmp_path / "out") == before
    monkeypatch.undo()
    summary = tiny.encode_dataset(tmp_path / "in", tmp_path / "out", append=True, **options)
    assert summary.resumed_rows == summary.rows
    assert load_vectors(tmp_path / "out").generation == 2
    # Inputs that change after a stop: what was embedded is made again.
    monkeypatch.setattr(growing_folder, "exchange_folders", stop)
    write_day(tmp_path / "in", DAYS[2])
    with pytest.raises(KeyboardInterrupt):
        tiny.encode_dataset(tmp_path / "in", tmp_path / "out", append=True, **options)
    monkeypatch.undo()
    write_day(tmp_path / "in", {**DAYS[2], "0.jsonl": [("z0", "others"), ("z1", "others")]})
    with pytest.raises(ResumeError, match="run the same command again: it embeds what is new"):
        tiny.encode_dataset(tmp_path / "in", tmp_path / "out", append=True, **options)
    tiny.encode_dataset(
        tmp_path / "in", tmp_path / "out", append=True, delete_missing=True, **options
    )
    tiny.encode_dataset(tmp_path / "in", tmp_path / "at-once", **options)
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "at-once")


def test_other_files_in_the_folder_stay(tiny: Embedder, tmp_path: Path) -> None:
    write_day(tmp_path / "in", DAYS[0])
    tiny.encode_dataset(tmp_path / "in", tmp_path / "out/")
    (tmp_path / "out" / "notes.txt").write_text("mine", "utf-8")
    (tmp_path / "out" / "more" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "more" / "deep" / "x").write_text("mine too", "utf-8")
    write_day(tmp_path / "in", DAYS[1])
    tiny.encode_dataset(tmp_path / "in", tmp_path / "out/", append=True)
    assert (tmp_path / "out" / "notes.txt").read_text("utf-8") == "mine"
    assert (tmp_path / "out" / "more" / "deep" / "x").read_text("utf-8") == "mine too"


def test_what_cannot_be_appended_is_refused_with_a_way_on(tiny: Embedder, tmp_path: Path) -> None:
    write_day(tmp_path / "in", DAYS[0])
    out = tmp_path / "out"
    tiny.encode_dataset(tmp_path / "in", out, id_column="id")

    def refused(error: type[Exception], words: str, output: Path = out, **options: Any) -> None:
        with pytest.raises(error, match=words):
            tiny.encode_dataset(tmp_path / "in", output, **options)

    refused(InputError, r"append=True.*is a file; name a folder", tmp_path / "x.npy", append=True)
    refused(InputError, r"not both", append=True, overwrite=True)
    refused(InputError, r"needs append=True", delete_missing=True)
    refused(ResumeError, r"id_column= was 'id'", append=True)
    write_day(tmp_path / "in", DAYS[1])
    refused(ResumeError, r"append=True", id_column="id")
    tiny.encode_dataset(tmp_path / "in", out, id_column="id", append=True)
    refused(ResumeError, r"was appended to.*go on with append=True", id_column="id")
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}\n', "utf-8")
    tiny.encode_dataset(twice, tmp_path / "two/", id_column="id")
    with pytest.raises(InputError, match=r"holds the id '1' twice.*unique_ids=True"):
        tiny.encode_dataset(twice, tmp_path / "two/", id_column="id", append=True)


def test_the_command_line_appends_and_says_what_it_did(
    tiny_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"embed {tmp_path}/in -o {tmp_path}/out/ -m {tiny_directory} --id-column id"
    for day, files in enumerate(DAYS[:2]):
        write_day(tmp_path / "in", files)
        assert main([*command.split(), "--append", "--delete-missing"]) == 0
        shown = capsys.readouterr().out
        assert ("appended" in shown) == (day == 1)
    assert "43 added, 4 replaced, 15 dropped: generation 2" in shown


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--kills 3 --every 9 --format npy", marks=pytest.mark.slow),
        *(
            pytest.param(f"--kills {rest} --format {name}", marks=pytest.mark.exhaustive)
            # An append by two workers starts two processes, which takes four seconds.
            for rest in ("200", "50 --every 7 --workers 2")
            for name in ("npy", "parquet")
        ),
    ],
)
def test_a_kill_leaves_the_store_before_or_after(options: str) -> None:
    command = [sys.executable, "-m", "tests.jobs.append_kills", *options.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for line in ran.stdout.splitlines():
        found = json.loads(line)
        assert found["kills"] >= int(options.split()[1])
        assert found["kills_at_changes"] > 5


@pytest.mark.parametrize("id_column", ["id", None])
def test_texts_of_a_grown_store_are_read_again(
    tiny: Embedder, tmp_path: Path, id_column: str | None
) -> None:
    out = tmp_path / "out"
    for files in DAYS[:2]:
        source = write_day(tmp_path / "in", files)
        tiny.encode_dataset(source, out, id_column=id_column, append=True, delete_missing=True)
    stored = load_vectors(out)
    texts = read_texts(stored, range(stored.rows))
    expected = tiny.encode([texts[row] for row in range(stored.rows)])
    np.testing.assert_array_equal(stored.vectors, expected)
    # Another store of the same rows goes with it; one of the first day does not.
    shutil.copytree(out, tmp_path / "copy")
    check_same_rows(stored, load_vectors(tmp_path / "copy"))
    write_day(tmp_path / "in", DAYS[1] | {"c.jsonl": [("c0", "others")]})
    with pytest.raises(ReadError, match="do not hold the rows"):
        read_texts(stored, range(stored.rows))


def test_changed_digests_of_rows_are_found_before_an_append(tiny: Embedder, tmp_path: Path) -> None:
    source = write_day(tmp_path / "in", DAYS[0])
    tiny.encode_dataset(source, tmp_path / "out/")
    path = tmp_path / "out" / "_part-00000.rows.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(ReadError, match=r"_part-00000\.rows\.npy is not as it was written"):
        tiny.encode_dataset(source, tmp_path / "out/", append=True)


def test_ids_of_another_type_are_refused(tiny: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "text": "a"}\n', "utf-8")
    options: dict[str, Any] = {"id_column": "id", "shard_format": "parquet"}
    tiny.encode_dataset(path, tmp_path / "out", **options)
    path.write_text('{"id": "b", "text": "b"}\n', "utf-8")
    with pytest.raises(ReadError, match="the first id is of type int, but row 0 has 'b'"):
        tiny.encode_dataset(path, tmp_path / "out", append=True, **options)
    assert load_vectors(tmp_path / "out").ids == [1]
