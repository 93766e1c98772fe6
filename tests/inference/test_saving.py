"""A compiled encoder is saved as the checkpoint that an encoder of the same weights is saved as."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from safetensors.numpy import load_file

import encoder_engine as ee
from encoder_engine.inference.saving import save_checkpoint
from tests.models.all_cases import MORE_CASES
from tests.models.cases import CASES, Case

if TYPE_CHECKING:
    from pathlib import Path

# Stacked query, key and value; fewer key heads; matrices with a row for each input; halves swapped.
FAMILIES = ("bert", "deberta-v2", "gpt2", "llama", "gemma3_text", "qwen3", "gte", "t5")
SAVED = [case for case in [*CASES, *MORE_CASES] if case.model_type in FAMILIES]


@pytest.mark.slow
@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("case", SAVED, ids=lambda case: case.id)
def test_the_files_are_those_of_an_encoder(
    case: Case, quantization: str | None, tmp_path: Path
) -> None:
    case.save(tmp_path / "theirs")
    compiled = ee.CompiledEncoder.from_pretrained(tmp_path / "theirs", "float32", quantization)
    encoder = ee.Encoder.from_pretrained(tmp_path / "theirs", "cpu", "float32", quantization)
    save_checkpoint(compiled, tmp_path / "compiled")
    encoder.save_pretrained(tmp_path / "module")
    ours, others = (load_file(tmp_path / n / "model.safetensors") for n in ("compiled", "module"))
    assert {name: array.tobytes() for name, array in ours.items()} == {
        name: array.tobytes() for name, array in others.items()
    }
    assert {name: array.shape for name, array in ours.items()} == {
        name: array.shape for name, array in others.items()
    }
    again = ee.CompiledEncoder.from_pretrained(tmp_path / "compiled", "float32")
    assert again.fingerprint() == compiled.fingerprint()
