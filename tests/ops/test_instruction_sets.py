"""C++ kernels and compiled encoders keep the error budget on every instruction set there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from encoder_engine.ops.cpu import native_instruction_set
from tests import ROOT

pytestmark = pytest.mark.slow
TESTS = ("tests/ops", "tests/inference/test_native_dense.py")
IGNORED = f"--ignore={Path(__file__).relative_to(ROOT)}"


def others() -> list[str]:
    """Name the instruction sets this processor could run, but for the one the tests run on."""
    if native_instruction_set() is None:
        return []
    from encoder_engine import _native

    return [s for s in _native.supported_instruction_sets() if s != native_instruction_set()]


@pytest.mark.parametrize("instruction_set", others())
def test_operations_hold_on_another_instruction_set(instruction_set: str) -> None:
    run_tests(instruction_set, *TESTS, "-k", "native", IGNORED)


@pytest.mark.exhaustive
@pytest.mark.parametrize("instruction_set", others())
def test_families_hold_on_another_instruction_set(instruction_set: str) -> None:
    """Against transformers, alone and in company, in every precision."""
    run_tests(instruction_set, "tests/embedding/test_families.py")
    run_tests(instruction_set, "tests/models/test_quantized.py", "tests/models/test_compiling.py")
    run_tests(instruction_set, "tests/inference/test_invariance.py")


@pytest.mark.parametrize("instruction_set", ["AVX2", "AVX512_CORE", "AVX512_CORE_BF16"])
def test_rows_stay_alone_on_another_instruction_set_of_onednn(instruction_set: str) -> None:
    """The most that this processor has is what the other tests run on."""
    run_tests(instruction_set, "tests/ops/test_rows_alone.py", variable="ONEDNN_MAX_CPU_ISA")


def run_tests(instruction_set: str, *arguments: str, variable: str = "ENCODER_ENGINE_ISA") -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "-q", "-x"],
        cwd=ROOT,
        env={**os.environ, variable: instruction_set},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert " passed" in ran.stdout
