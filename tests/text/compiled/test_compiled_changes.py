"""What becomes of a compiled file does not matter to a process that has read it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["unwanted lowest", "a b c", "[MASK] want !"]


@pytest.fixture
def compiled(toy_folder: Path, tmp_path: Path) -> Path:
    """Compile the toy."""
    path = tmp_path / "toy.eetok"
    Tokenizer.from_pretrained(toy_folder).save_compiled(path)
    return path


def test_a_file_written_over_in_place_changes_no_result(compiled: Path) -> None:
    tok = Tokenizer.from_pretrained(compiled)
    before = tok.encode_batch(TEXTS).tolist()
    with compiled.open("r+b") as file:
        file.write(b"\0" * compiled.stat().st_size)
    assert tok.encode_batch(TEXTS).tolist() == before
    assert Tokenizer(tok.spec).encode_batch(TEXTS).tolist() == before
    assert tok.token_to_id("lowest") is not None
    with pytest.raises(TokenizerFileError, match="not a compiled tokenizer"):
        Tokenizer.from_pretrained(compiled)


@pytest.mark.slow
def test_a_file_cut_short_ends_no_process(compiled: Path) -> None:
    program = (
        "import os, sys\n"
        "from encoder_engine.text import Tokenizer\n"
        "tok = Tokenizer.from_pretrained(sys.argv[1])\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(tok.encode_batch(['unwanted', 'b [MASK]']).tolist(), tok.decode([5, 7]))\n"
    )
    wanted = Tokenizer.from_pretrained(compiled)
    rows = wanted.encode_batch(["unwanted", "b [MASK]"]).tolist()
    command = [sys.executable, "-c", program, str(compiled)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{rows} {wanted.decode([5, 7])}"


@pytest.mark.parametrize("size", [0, 1, 23, 24, 100, 4096])
def test_a_file_of_any_size_is_refused_by_type(compiled: Path, size: int) -> None:
    compiled.write_bytes(compiled.read_bytes()[:size])
    with pytest.raises(TokenizerFileError):
        Tokenizer.from_pretrained(compiled)
