"""Encoders of whole checkpoints of BART and mBART, with their decoders and heads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.errors import UnsupportedFeatureError, UnusedWeightsWarning
from encoder_engine.families.config import spec_from_config
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.models.all_cases import MORE_CASES
from tests.models.exact import exact, in_float64
from tests.models.test_families import LENGTHS, token_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
CASES = {case.model_type: case for case in reversed(MORE_CASES) if "bart" in case.model_type}


@pytest.mark.parametrize("head", ["Model", "ForConditionalGeneration", "ForSequenceClassification"])
@pytest.mark.parametrize("model_type", ["bart", "mbart"])
@pytest.mark.parametrize("copied", [False, True], ids=["tied", "copied"])
def test_the_encoder_of_a_whole_checkpoint_is_loaded(
    model_type: str, head: str, copied: bool, tmp_path: Path
) -> None:
    import transformers

    case = CASES[model_type]
    stem = case.config_class.removesuffix("Config")
    torch.manual_seed(0)
    config = getattr(transformers, case.config_class)(**case.sizes)
    model = getattr(transformers, stem + head)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    if copied:
        # Older files repeat the table of tokens under every name.
        tensors = load_file(tmp_path / "model.safetensors")
        shared = next(name for name in tensors if name.endswith("shared.weight"))
        for part in ("encoder", "decoder"):
            copy = shared.replace("shared", f"{part}.embed_tokens")
            tensors[copy] = tensors[shared].clone()
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(UnusedWeightsWarning, match="only the encoder was loaded"):
        encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    rows = token_rows(LENGTHS)
    with torch.no_grad():
        found = encoder(pack(rows)).last_hidden_state
        eager = [model.get_encoder()(torch.tensor([row]))[0][0] for row in rows]
        with in_float64():
            whole = exact(model)
            truth = [whole.get_encoder()(torch.tensor([row]))[0][0] for row in rows]
    terms = 3 * encoder.spec.width
    assert_within_budget(found, torch.cat(eager), torch.cat(truth), terms=terms)


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("bart", "normalize_before", True),
        ("mbart", "normalize_before", False),
        ("bart", "add_final_layer_norm", True),
        ("mbart", "add_final_layer_norm", False),
        ("bart", "normalize_embedding", False),
        ("bart", "static_position_embeddings", True),
        ("mbart", "extra_pos_embeddings", 0),
    ],
)
def test_layouts_of_other_blocks_are_refused(
    model_type: str, key: str, value: object, tmp_path: Path
) -> None:
    CASES[model_type].save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    spec_from_config(config)
    with pytest.raises(UnsupportedFeatureError, match=key):
        spec_from_config(config | {key: value})
