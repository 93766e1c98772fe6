"""Compiled files: the same bits as the encoder that wrote them, or a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.errors import CheckpointFileError, ConfigError
from encoder_engine.families.checkpoints.files import COMPILED
from encoder_engine.families.registry import all_families
from encoder_engine.inference import CompiledEncoder
from encoder_engine.inference.compiled_file import VERSION, write_compiled
from encoder_engine.inference.layers import Dense
from encoder_engine.ops.cpu import native_instruction_set
from tests.inference.test_compiled_encoder import (
    BERT,
    FAMILIES,
    PRECISIONS,
    arrays,
    draw_batch,
    load,
)
from tests.models.cases import VOCAB_SIZE, Case, case_id
from tests.models.test_heads import build

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.families.facts.head_layout import HeadLayout

pytestmark = [
    pytest.mark.skipif(
        native_instruction_set() in (None, "portable"),
        reason="the module would not compute with the same kernels here",
    ),
    pytest.mark.filterwarnings("ignore:.*pooler weights"),
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.UnusedWeightsWarning"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), FAMILIES, ids=case_id)
def test_a_compiled_file_has_the_same_bits(case: Case, precision: str, tmp_path: Path) -> None:
    module, compiled = load(case, tmp_path / "model", precision)
    compiled.save_compiled(tmp_path / "compiled")
    mapped = CompiledEncoder.from_pretrained(tmp_path / "compiled")
    batch = draw_batch(num_types=max(1, module.spec.embedding.num_segments))
    np.testing.assert_array_equal(mapped.hidden(*arrays(batch)), compiled.hidden(*arrays(batch)))
    assert mapped.fingerprint() == compiled.fingerprint()
    assert repr(mapped) == repr(compiled)


@pytest.mark.parametrize("layout", all_families()["bert"].layouts, ids=lambda one: one.task)
def test_a_compiled_head_has_the_same_bits(layout: HeadLayout, tmp_path: Path) -> None:
    build(BERT, layout, tmp_path / "model")
    compiled = CompiledEncoder.from_pretrained(tmp_path / "model", head=layout.task)
    compiled.save_compiled(tmp_path / "compiled")
    mapped = CompiledEncoder.from_pretrained(tmp_path / "compiled", head=layout.task)
    batch = draw_batch()
    np.testing.assert_array_equal(mapped.logits(*arrays(batch)), compiled.logits(*arrays(batch)))
    with pytest.raises(ConfigError, match="was compiled with head="):
        CompiledEncoder.from_pretrained(tmp_path / "compiled", head="replaced-tokens")


def test_a_damaged_compiled_file_is_refused(tmp_path: Path) -> None:
    _, compiled = load(BERT, tmp_path / "model", "float32")
    compiled.save_compiled(tmp_path)
    path = tmp_path / COMPILED
    whole = path.read_bytes()
    batch = draw_batch()
    expected = compiled.hidden(*arrays(batch))
    generator = np.random.default_rng(3)
    size = 8 + int.from_bytes(whole[:8], "little")
    for case in range(300):
        damaged = bytearray(whole)
        limit = size if case % 2 else len(whole)
        place = int(generator.integers(limit))
        damaged[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged if case % 5 else whole[:place])
        try:
            again = CompiledEncoder.from_pretrained(tmp_path)
        except CheckpointFileError:
            continue
        # Padding, and names that nothing depends on.
        np.testing.assert_array_equal(again.hidden(*arrays(batch)), expected)


BOTH = """
import sys
import numpy as np
from encoder_engine.inference import CompiledEncoder
plain, compiled = (
    CompiledEncoder.from_pretrained(folder).hidden(np.arange(5, 15), np.array([0, 10]))
    for folder in sys.argv[1:]
)
np.testing.assert_array_equal(plain, compiled)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in ("bfloat16", "int8")))
        for name in PRECISIONS
    ],
)
def test_a_compiled_file_is_read_on_another_instruction_set(precision: str, tmp_path: Path) -> None:
    from encoder_engine import _native

    dtype, quantization = PRECISIONS[precision]
    BERT.save(tmp_path / "model")
    compiled = CompiledEncoder.from_pretrained(tmp_path / "model", dtype, quantization)
    compiled.save_compiled(tmp_path / "compiled")
    call = f"from_pretrained(folder, {dtype!r}, {quantization!r})"
    program = BOTH.replace("from_pretrained(folder)", call)
    for instruction_set in _native.supported_instruction_sets():
        subprocess.run(
            [sys.executable, "-c", program, tmp_path / "model", tmp_path / "compiled"],
            env={**os.environ, "ENCODER_ENGINE_ISA": instruction_set},
            check=True,
        )


def test_a_compiled_file_of_another_version_is_refused(tmp_path: Path) -> None:
    _, compiled = load(BERT, tmp_path / "model", "float32")
    compiled.save_compiled(tmp_path)
    path = tmp_path / COMPILED
    written = f'"version": "{VERSION}"'.encode()
    content = path.read_bytes()
    assert written in content
    path.write_bytes(content.replace(written, b'"version": "9"', 1))
    with pytest.raises(CheckpointFileError, match=f"version 9 .* reads version {VERSION}; compile"):
        CompiledEncoder.from_pretrained(tmp_path)


def test_a_compiled_file_is_for_what_it_was_compiled_for(tmp_path: Path) -> None:
    _, compiled = load(BERT, tmp_path / "model", "bfloat16")
    compiled.save_compiled(tmp_path)
    with pytest.raises(ConfigError, match="compiled with dtype='bfloat16', not 'float32'"):
        CompiledEncoder.from_pretrained(tmp_path, "float32")
    with pytest.raises(ConfigError, match="compiled with quantization=None, not 'int8'"):
        CompiledEncoder.from_pretrained(tmp_path, quantization="int8")


@pytest.mark.parametrize("change", ["sizes", "table"])
def test_a_compiled_file_of_other_sizes_is_refused(change: str, tmp_path: Path) -> None:
    _, compiled = load(BERT, tmp_path / "model", "float32")
    layers = compiled._layers()
    if change == "sizes":
        name = "blocks.0.feed_forward.up"
        layer = layers[name]
        assert isinstance(layer, Dense)
        layers[name] = replace(layer, width=64 * layer.width)
    else:
        layers["embedding.tokens.weight"] = np.zeros((VOCAB_SIZE, 16), np.float32)
    write_compiled(tmp_path / COMPILED, compiled._description, layers)
    with pytest.raises(CheckpointFileError, match="has not the size"):
        CompiledEncoder.from_pretrained(tmp_path)
