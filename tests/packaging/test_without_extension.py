"""Without the C++ extension the package imports, says so, and tells how to build it."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import sys
sys.modules["encoder_engine._native"] = None  # what a missing extension looks like to import
import encoder_engine as ee
from encoder_engine.ops.cpu import native_instruction_set
assert native_instruction_set() is None
try:
    ee.Tokenizer.from_pretrained(sys.argv[1], lowercase=True)
except ee.errors.MissingExtensionError as error:
    print(error)
"""


@pytest.mark.parametrize(("processor", "runs"), [("core2duo", False), ("Nehalem", True)])
def test_a_processor_below_x86_64_v2_is_refused(processor: str, runs: bool, tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None or platform.machine() != "x86_64":
        pytest.skip("qemu-x86_64 is not installed here")
    script = "from encoder_engine import Tokenizer, _native; print(_native.instruction_set())"
    ran = subprocess.run(
        [emulator, "-cpu", processor, sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if runs:
        assert ran.stdout == "portable\n", ran.stderr
    else:
        assert "\nImportError: this processor is below x86-64-v2" in ran.stderr


def test_the_package_imports_and_the_tokenizer_says_what_is_missing(tmp_path: object) -> None:
    vocabulary = f"{tmp_path}/vocab.txt"
    with open(vocabulary, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, vocabulary],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "build_ext --inplace" in ran.stdout
