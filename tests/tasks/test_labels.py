"""Labels of training rows are put in one order, whatever their names."""

from __future__ import annotations

import pytest

from encoder_engine.inputs.records import Record
from encoder_engine.tasks.labels import collect_labels


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["1", "01", "001"], ("001", "01", "1")),
        (["\u00b2", "1"], ("1", "\u00b2")),
        (["--1", "2", "-"], ("-", "--1", "2")),
        (["1" * 5000, "2"], ("1" * 5000, "2")),
    ],
)
def test_labels_are_in_the_order_of_whole_numbers_or_of_names(
    names: list[str], expected: tuple[str, ...]
) -> None:
    assert collect_labels(names) == expected
    assert collect_labels(reversed(names)) == expected


@pytest.mark.parametrize(
    ("value", "name"),
    [(True, "true"), (False, "false"), (1, "1"), ("True", "True"), ("true", "true")],
)
def test_a_label_is_spelled_as_its_file_spells_it(value: object, name: str) -> None:
    assert Record({"label": value}).name_of("label") == name
