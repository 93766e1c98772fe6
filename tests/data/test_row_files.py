"""Rows are written as one table, whatever types their columns take on late."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from encoder_engine.data.row_files import write_rows
from encoder_engine.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path

# More rows than are written together.
MANY = 5000
LATE: dict[str, tuple[Any, Any]] = {
    "a value after nulls": (None, 3),
    "a fraction after integers": (1, 0.5),
    "texts after empty lists": ([], ["a", "b"]),
    "nulls after values": ("a", None),
    "the same type": (1, 2),
}
MISFITS: dict[str, tuple[Any, Any]] = {
    "a text after integers": (1, "a"),
    "an integer after texts": ("a", 1),
    "a truth value after integers": (1, True),
    "a list after a number": (1, [1]),
    "an integer beyond 64 bits": (1, 2**70),
    "an inexact integer after fractions": (0.5, 2**53 + 1),
    "a lone surrogate": ("a", "\ud800"),
}


@pytest.mark.parametrize("place", [3, MANY - 1])
@pytest.mark.parametrize("case", LATE)
def test_a_column_takes_the_type_of_all_its_rows(case: str, place: int, tmp_path: Path) -> None:
    early, late = LATE[case]
    rows = [{"number": row, "value": early} for row in range(MANY)]
    rows[place]["value"] = late
    assert write_rows(tmp_path / "rows.parquet", rows) == MANY
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").to_pylist() == rows
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_column_widens_more_than_once(tmp_path: Path) -> None:
    values = [None] * MANY + [1] * MANY + [0.5] * MANY
    rows = [{"value": value} for value in values]
    write_rows(tmp_path / "rows.parquet", rows)
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet")["value"].to_pylist() == values


@pytest.mark.parametrize("place", [3, MANY - 1])
@pytest.mark.parametrize("case", MISFITS)
def test_a_row_that_no_type_holds_is_named(case: str, place: int, tmp_path: Path) -> None:
    early, late = MISFITS[case]
    rows = [{"value": early} for _ in range(MANY)]
    rows[place]["value"] = late
    with pytest.raises(OutputError, match=f"row {place + 1}: .*name a .jsonl file"):
        write_rows(tmp_path / "rows.parquet", rows)
    assert not list(tmp_path.iterdir())


def test_integers_that_a_later_fraction_would_round_are_refused(tmp_path: Path) -> None:
    rows = [{"value": 2**53 + 1}] * MANY + [{"value": 0.5}]
    with pytest.raises(OutputError, match="9007199254740993"):
        write_rows(tmp_path / "rows.parquet", rows)


@pytest.mark.parametrize("place", [3, MANY - 1])
@pytest.mark.parametrize("row", [{"value": 1, "more": 2}, {"other": 1}, {}], ids=str)
def test_a_row_of_other_columns_is_named(row: dict[str, Any], place: int, tmp_path: Path) -> None:
    rows = [{"value": 1} for _ in range(MANY)]
    rows[place] = row
    with pytest.raises(OutputError, match=f"row {place + 1}: it has the columns"):
        write_rows(tmp_path / "rows.parquet", rows)


def test_lines_of_json_keep_every_text(tmp_path: Path) -> None:
    rows = [{"value": "\xe9"}, {"value": "\ud800"}]
    write_rows(tmp_path / "rows.jsonl", rows)
    lines = (tmp_path / "rows.jsonl").read_bytes().splitlines()
    assert lines == ['{"value": "\xe9"}'.encode(), b'{"value": "\\ud800"}']
    assert [json.loads(line) for line in lines] == rows
