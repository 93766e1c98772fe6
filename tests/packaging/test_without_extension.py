"""Without the C++ extension the package imports, says so, and tells how to build it."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import ROOT

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
