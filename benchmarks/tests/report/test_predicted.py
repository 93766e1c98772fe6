"""Predictions are shown as predictions, from the table that tests compare the kernels with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.records.predicted import Prediction, read_predictions
from benchmarks.report.page import Table
from benchmarks.report.predicted import SHOWN, predicted_section

if TYPE_CHECKING:
    from pathlib import Path


def test_the_section_says_that_nothing_was_measured() -> None:
    one = Prediction(
        kernel="attention forward d64",
        instructions=461,
        registers=155,
        residents=1,
        serial=0.43,
        overlapped=0.97,
    )
    section = predicted_section([one])
    assert "not measured" in section.title
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert table.rows == [("attention forward d64", "461", "155", "1", "43%", "97%")]


def test_every_kernel_that_is_shown_is_in_the_table() -> None:
    assert set(SHOWN) <= {p.kernel for p in read_predictions()}


def test_without_a_table_nothing_is_predicted(tmp_path: Path) -> None:
    assert read_predictions(tmp_path / "none.json") == []
