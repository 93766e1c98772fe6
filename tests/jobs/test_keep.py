"""Columns of the inputs beside the vectors: kept as they are, searched, appended to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.cli import main
from encoder_engine.errors import OutputError, ReadError, ResumeError
from encoder_engine.vectors import load_vectors
from encoder_engine.vectors.search import search_vectors

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder

pyarrow = pytest.importorskip("pyarrow")
ROWS = [
    {"id": f"r{n}", "text": f"text {n}", "lang": None if n % 4 else "en", "year": 2000 + n}
    for n in range(20)
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    return path


@pytest.mark.parametrize("id_column", ["id", None])
@pytest.mark.parametrize("output", ["out.parquet", "out.arrow", "out.lance", "out/"])
def test_kept_columns_stand_beside_the_vectors(
    tiny: Embedder, source: Path, tmp_path: Path, output: str, id_column: str | None
) -> None:
    if output.endswith("lance"):
        pytest.importorskip("lance")
    keep = ["text", "lang", "year"]
    tiny.encode_dataset(source, f"{tmp_path}/{output}", id_column=id_column, keep=keep)
    stored = load_vectors(tmp_path / output)
    assert stored.ids == (None if id_column is None else [row["id"] for row in ROWS])
    expected = {n: {name: ROWS[n][name] for name in keep} for n in (0, 3, 19)}
    assert stored.kept({0, 3, 19}) == expected
    hits = search_vectors(stored, stored.vectors[3:4], 1)[0]
    assert (hits[0].row, hits[0].kept) == (3, expected[3])
    if output in ("out.parquet", "out/"):
        table = pyarrow.parquet.read_table(tmp_path / output)
        names = [*([] if id_column is None else ["id"]), *keep, "embedding"]
        assert table.column_names == names
        assert table.select(keep).to_pylist() == [
            {name: row[name] for name in keep} for row in ROWS
        ]


def test_kept_columns_grow_with_their_store(tiny: Embedder, source: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"id_column": "id", "keep": ["lang", "year"]}
    tiny.encode_dataset(source, tmp_path / "out", **options)
    more = [{"id": "r0", "text": "others", "lang": None, "year": 1}, {**ROWS[1], "id": "new"}]
    source.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS[1:], *more]), "utf-8")
    tiny.encode_dataset(source, tmp_path / "out", append=True, **options)
    stored = load_vectors(tmp_path / "out")
    assert stored.kept({18, 19, 20}) == {
        18: {"lang": None, "year": 2019},
        19: {"lang": None, "year": 1},
        20: {"lang": None, "year": 2001},
    }
    with pytest.raises(ResumeError, match=r"keep= was"):
        tiny.encode_dataset(source, tmp_path / "out", append=True, id_column="id")


def test_search_shows_the_texts(
    tiny: Embedder, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.loading.path  # type: ignore[union-attr]
    command = ["embed", str(source), "-o", f"{tmp_path}/out/", "-m", model, "--keep", "text,lang"]
    assert main([*command, "--id-column", "id", "-q"]) == 0
    assert main(["search", f"{tmp_path}/out", "text 4", "--top", "1", "--prompt", ""]) == 0
    shown = capsys.readouterr().out
    assert "r4" in shown
    assert "text: text 4\n" in shown
    assert "lang: en\n" in shown
    command = ["search", f"{tmp_path}/out", "text 4", "--top", "1", "--prompt", "", "--json"]
    assert main(command) == 0
    hit = json.loads(capsys.readouterr().out)["hits"][0]
    assert hit["kept"] == {"text": "text 4", "lang": "en"}


def test_lines_of_texts_keep_their_text(tiny: Embedder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", "utf-8")
    tiny.encode_dataset(tmp_path / "a.txt", tmp_path / "out.parquet", keep=["text"])
    assert load_vectors(tmp_path / "out.parquet").kept({1}) == {1: {"text": "two"}}


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (ROWS, {"keep": ["language"]}, r"no column 'language'; did you mean 'lang'.*keep="),
        (ROWS, {"id_column": "ID"}, r"no column 'ID'.*id_column="),
        (
            [{"text": "a", "n": 1}, {"text": "b", "n": "two"}],
            {"keep": ["n"]},
            r"'n', which keep= names, holds int64 in its first row and 'two' in row 1",
        ),
        ([{"text": "a", "n": "\ud800"}], {"keep": ["n"]}, "n has"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(
    tiny: Embedder, tmp_path: Path, rows: list[dict[str, Any]], options: Any, words: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(ReadError, match=words):
        tiny.encode_dataset(path, tmp_path / "out.parquet", **options)


def test_arrays_and_names_of_vectors_keep_nothing(
    tiny: Embedder, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=r"no columns for keep=.*shard_format="):
        tiny.encode_dataset(source, tmp_path / "out.npy", keep=["text"])
    for keep in (["id"], ["text", "text"]):
        with pytest.raises(OutputError, match=r"keep= names"):
            tiny.encode_dataset(source, tmp_path / "o.parquet", id_column="id", keep=keep)


def test_errors_name_the_option_of_the_door(
    tiny: Embedder, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ReadError, match=r"name one with id_column="):
        tiny.encode_dataset(source, tmp_path / "out.npy", id_column="key")
    model = tiny.loading.path  # type: ignore[union-attr]
    command = ["embed", str(source), "-m", model, "-o"]
    for more, words in (
        ([f"{tmp_path}/out.npy", "--id-column", "key"], "name one with --id-column"),
        ([f"{tmp_path}/out.npy", "--keep", "lang"], "a folder with --shard-format"),
        ([f"{tmp_path}/out.npy", "--append"], "error: --append adds to a folder of shards"),
        ([f"{tmp_path}/out/", "--unique-ids"], "name it with --id-column"),
        ([f"{tmp_path}/out/", "--max-characters", "3"], "raise --max-characters"),
    ):
        assert main([*command, *more]) == 1
        shown = capsys.readouterr().err
        assert words in shown
        assert "(--" not in shown
