"""Mapped weights take the memory of what is read of them, and processes share them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.errors import NonFiniteWeightsError
from encoder_engine.families.checkpoints.files import COMPILED
from encoder_engine.families.facts.spec import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    EncoderSpec,
    FeedForwardSpec,
)
from encoder_engine.inference import CompiledEncoder
from encoder_engine.models import Encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/smaps_rollup").exists(), reason="the kernel does not count pages"
    ),
]
# The goal for a second process of a model: a quarter of what the first one takes.
MOST_ADDED = 0.25
PROGRAM = """
import sys
import numpy as np
from encoder_engine.inference import CompiledEncoder
encoder = CompiledEncoder.from_pretrained(sys.argv[1], num_threads=1)
encoder.hidden(np.arange(32), np.array([0, 32]))
print("ready", flush=True)
sys.stdin.read()
"""


def make_model(num_layers: int, vocab_size: int = 64) -> Encoder:
    block = BlockSpec(
        attention=AttentionSpec(num_heads=8, head_dim=64), feed_forward=FeedForwardSpec(width=2048)
    )
    spec = EncoderSpec(
        model_type="bert",
        width=512,
        embedding=EmbeddingSpec(
            vocab_size=vocab_size, width=512, num_positions=64, num_segments=2, padding_id=0
        ),
        blocks=(block,) * num_layers,
        pooler=False,
    )
    return Encoder(spec)


def compile_model(folder: Path, num_layers: int) -> int:
    """Compile a model of so many blocks, and return the bytes of its file."""
    make_model(num_layers).save_pretrained(folder / "model")
    CompiledEncoder.from_pretrained(folder / "model").save_compiled(folder)
    return (folder / COMPILED).stat().st_size


def private_bytes(process: subprocess.Popen[str]) -> int:
    """Return the memory that no other process maps."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    found = (line.split() for line in lines if line.startswith("Private_"))
    return sum(int(words[1]) << 10 for words in found)


def start(stack: ExitStack, folder: Path) -> subprocess.Popen[str]:
    """Start a process that has computed with the model and lives on."""
    command = [sys.executable, "-c", PROGRAM, folder]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process: subprocess.Popen[str] = stack.enter_context(
        subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_second_process_has_no_weights_of_its_own(stack: ExitStack, tmp_path: Path) -> None:
    small = compile_model(tmp_path / "small", 1)
    large = compile_model(tmp_path / "large", 12)
    first, second = (start(stack, tmp_path / "large") for _ in range(2))
    # Two as well, so that the same libraries' pages are shared.
    others = [start(stack, tmp_path / "small") for _ in range(2)]
    added = private_bytes(second) - private_bytes(others[1])
    assert first.poll() is None
    assert added <= MOST_ADDED * (large - small)


def resident_bytes(path: Path) -> int:
    """Return how much of a file's mappings is in this process's memory."""
    found, is_inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            is_inside = bool(rest) and rest[-1] == str(path)
        elif is_inside and first == "Rss:":
            found += int(rest[0]) << 10
    return found


def test_a_table_is_checked_without_its_pages(tmp_path: Path) -> None:
    make_model(1, vocab_size=20_000).save_pretrained(tmp_path)
    path = (tmp_path / "model.safetensors").resolve()
    encoder = CompiledEncoder.from_pretrained(tmp_path)
    encoder.hidden(np.arange(32), np.array([0, 32]))
    assert 0 < resident_bytes(path) < path.stat().st_size / 10
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    first, last = json.loads(content[8:header])["embeddings.word_embeddings.weight"]["data_offsets"]
    assert last - first == 20_000 * 512 * 4
    content[header + last - 4 : header + last] = np.float32("nan").tobytes()
    path.write_bytes(content)
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(NonFiniteWeightsError, match="1 of 20000 rows, the first row 19999"):
        CompiledEncoder.from_pretrained(tmp_path)
