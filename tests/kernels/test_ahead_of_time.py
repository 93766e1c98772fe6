"""Every kernel compiles for sm_80 and sm_90, and none begins to spill or to miss tensor cores."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT
from tests.kernels.ahead_of_time import TABLE

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


def test_no_kernel_uses_more_than_the_committed_table_says() -> None:
    # Compiled in a process of its own: in this one, Triton may be interpreting.
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ahead_of_time"],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found, committed = json.loads(ran.stdout), json.loads(TABLE.read_text(encoding="utf-8"))
    assert found.keys() == committed.keys(), "run python -m tests.kernels.ahead_of_time --write"
    for name, targets in found.items():
        for target, used in targets.items():
            expected = committed[name][target]
            assert used["spilled_bytes"] <= expected["spilled_bytes"], f"{name} on {target} spills"
            has_tensor_cores = used["tensor_core_instructions"] > 0
            assert has_tensor_cores == (expected["tensor_core_instructions"] > 0), name
