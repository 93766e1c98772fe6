"""Every kernel compiles for sm_80 and sm_90, and none begins to spill or to miss tensor cores."""

from __future__ import annotations

import importlib.util
import json
import os
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
# Nobody debugs what is compiled here: lines are left out.
COMPILING = {
    "TRITON_INTERPRET": "0",
    "TRITON_DEFAULT_FP_FUSION": "1",
    "TRITON_DISABLE_LINE_INFO": "1",
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Compile in a process of its own: in this one, Triton may be interpreting."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ahead_of_time"],
        cwd=ROOT,
        env=os.environ | COMPILING,
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
            has_tensor_cores = used["tensor_core_instructions"] > 0
            assert has_tensor_cores == (expected["tensor_core_instructions"] > 0), name


def test_no_kernel_spills_more_than_the_committed_table_says(
    found: dict[str, Any], committed: dict[str, Any]
) -> None:
    if found["triton"] != committed["triton"]:
        pytest.skip(f"the table is of Triton {committed['triton']}, this is {found['triton']}")
    for name, targets in found["kernels"].items():
        for target, used in targets.items():
            expected = committed["kernels"][name][target]
            assert used["spilled_bytes"] <= expected["spilled_bytes"], f"{name} on {target} spills"
