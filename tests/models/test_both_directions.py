"""Decoders whose configurations switch causality off are bidirectional, as in transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.families.config import spec_from_config
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.models.all_cases import MORE_CASES
from tests.models.cases import Case, case_id
from tests.models.exact import exact, in_float64
from tests.models.test_families import LENGTHS, by_transformers, token_rows

if TYPE_CHECKING:
    from pathlib import Path

DECODERS = ("llama", "mistral", "qwen2", "qwen3", "gpt2")
# The first of each family; Mistral's and Qwen2's have windows.
CASES = [next(case for case in MORE_CASES if case.model_type == name) for name in DECODERS]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_outputs_are_within_budget(case: Case, tmp_path: Path) -> None:
    both = replace(case, sizes={**case.sizes, "is_causal": False})
    model = both.save(tmp_path)
    rows = token_rows(LENGTHS)
    eager = torch.cat(by_transformers(model, rows, padded=False)["last_hidden_state"])
    with in_float64():
        states = by_transformers(exact(model), rows, padded=False)["last_hidden_state"]
        truth = torch.cat(states)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    assert not encoder.spec.is_causal
    batch = pack(rows)
    with torch.no_grad():
        found = encoder(batch).last_hidden_state
    terms = 3 * truth.shape[1]
    assert_within_budget(found, eager, truth, terms=terms)
    compiled = ee.CompiledEncoder.from_pretrained(tmp_path)
    hidden = compiled.hidden(batch.input_ids.numpy(), batch.cu_seqlens.numpy())
    assert_within_budget(torch.from_numpy(hidden), eager, truth, terms=terms)
    encoder.save_pretrained(tmp_path / "again")
    assert ee.Encoder.from_pretrained(tmp_path / "again", device="cpu").spec == encoder.spec


def test_the_key_is_refused_where_another_one_decides(tmp_path: Path) -> None:
    gemma = next(case for case in MORE_CASES if case.model_type == "gemma3_text")
    gemma.save(tmp_path, is_causal=False)
    with pytest.raises(UnsupportedFeatureError, match="is_causal=False"):
        ee.Encoder.from_pretrained(tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["mistral", "qwen2"])
def test_a_window_that_is_not_stated_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    import transformers

    case = next(case for case in CASES if case.model_type == name)
    case.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    del config["sliding_window"]
    size = getattr(transformers, case.config_class).from_dict(dict(config)).sliding_window
    windows = {block.attention.window for block in spec_from_config(config).blocks}
    assert windows - {None} == {size - 1}
    spec = spec_from_config(config | {"sliding_window": None})
    assert {block.attention.window for block in spec.blocks} == {None}
