"""Every kernel compiles for sm_80 and sm_90, and none begins to spill or to miss tensor cores."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.kernels.ahead_of_time import TABLE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed"
    ),
]
# Heads of 256 would spill at the 64 rows that a wgmma takes.
MMA_SYNC = {
    f"attention {kernel} d256{terms}"
    for kernel in ("forward", "grad_query", "grad_key_value")
    for terms in ("", " bias dropout")
} - {"attention forward d256"}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Compile in a process of its own: in this one, Triton may be interpreting."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ahead_of_time"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    table: dict[str, Any] = json.loads(ran.stdout)
    return table


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    """Read the table."""
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def test_every_kernel_compiles_and_multiplies_by_tensor_cores(
    found: dict[str, Any], committed: dict[str, Any]
) -> None:
    assert found["kernels"].keys() == committed["kernels"].keys(), (
        "run python -m tests.kernels.ahead_of_time --write"
    )
    for name, targets in found["kernels"].items():
        for target, used in targets.items():
            expected = committed["kernels"][name][target]
            for kind in ("wgmma", "mma_sync"):
                assert (used[kind] > 0) == (expected[kind] > 0), f"{name} on {target}: {kind}"
            # A GPU as of Hopper multiplies at half its rate by the older instructions.
            if target == "sm_90" and name not in MMA_SYNC:
                assert used["mma_sync"] == 0, name


def test_no_kernel_reads_narrower_than_the_committed_table_says(
    found: dict[str, Any], committed: dict[str, Any]
) -> None:
    for name, targets in found["kernels"].items():
        for target, used in targets.items():
            expected = committed["kernels"][name][target]
            assert used["narrow_loads"] <= expected["narrow_loads"], f"{name} on {target}"


def test_no_kernel_spills_more_than_the_committed_table_says(
    found: dict[str, Any], committed: dict[str, Any]
) -> None:
    if found["triton"] != committed["triton"]:
        pytest.skip(f"the table is of Triton {committed['triton']}, this is {found['triton']}")
    for name, targets in found["kernels"].items():
        for target, used in targets.items():
            expected = committed["kernels"][name][target]
            assert used["spilled_bytes"] <= expected["spilled_bytes"], f"{name} on {target} spills"
