"""No kernel's inner loop grows, and no bound of its speed falls, without a reason on record."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests import ROOT
from tests.kernels import bounds
from tests.kernels.ahead_of_time import variants

ROW: bounds.Row = {
    "instructions": 400,
    "mma_sync": 0,
    "spilled_bytes": 0,
    "residents": 2,
    "serial": 0.5,
    "overlapped": 0.9,
}


def test_a_better_kernel_is_no_complaint() -> None:
    better = ROW | {"instructions": 300, "serial": 0.6}
    assert bounds.complaints({"a": better}, {"a": ROW}) == []
    assert bounds.complaints({"a": ROW | {"serial": 0.499}}, {"a": ROW}) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"instructions": 401}, "a: 401 instructions, it was 400"),
        ({"mma_sync": 8}, "a: 8 mma_sync, it was 0"),
        ({"spilled_bytes": 4}, "a: 4 spilled_bytes, it was 0"),
        ({"residents": 1}, "a: residents 1, it was 2"),
        ({"serial": 0.4}, "a: serial 0.4, it was 0.5"),
    ],
)
def test_a_slower_kernel_is_told(changed: bounds.Row, told: str) -> None:
    assert bounds.complaints({"a": ROW | changed}, {"a": ROW}) == [told]


def test_a_kernel_without_a_row_and_a_row_without_a_kernel_are_told() -> None:
    assert bounds.complaints({"a": ROW}, {"b": ROW}) == [
        "a: it has no row",
        "b: its kernel is gone",
    ]


def test_the_table_has_a_reason_and_is_renewed_with_none_less() -> None:
    assert bounds.read()["because"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.bounds", "--write"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "--because" in ran.stderr


@pytest.mark.exhaustive
def test_no_kernel_is_slower_by_its_bounds_than_the_table_says() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.bounds"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_table_of_attentions_readme_is_that_of_the_bounds() -> None:
    kernels, variant_of = bounds.read()["kernels"], {v.name: v for v in variants(bounds.TARGET)}
    loops = {"forward": "forward", "dQ": "grad_query", "dK, dV": "grad_key_value"}
    text = (ROOT / "kernels/attention/README.md").read_text("utf-8")
    lines = re.findall(
        r"^\| (forward|dQ|dK, dV) (d\d+)(?:,( \w+))? \| (.+) \|$", text, re.MULTILINE
    )
    assert len(lines) > 10
    for loop, head, term, figures in lines:
        name = f"attention {loops[loop]} {head}{term}"
        row, constants = kernels[name], variant_of[name].constants
        assert figures == (
            f"{constants['BLOCK_ROWS']} x {constants['BLOCK_KEYS']} | {row['instructions']:,} | "
            f"{row['wgmma']} | {row['overlapped']:.0%} | {row['registers']}, {row['residents']}"
        ).replace("%", " %"), name
