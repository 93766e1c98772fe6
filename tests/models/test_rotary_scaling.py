"""Scaled rotary angles against transformers', and the ways in which configurations state them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.config import spec_from_config, spec_to_config
from encoder_engine.families.facts.paths import with_fact
from encoder_engine.families.facts.spec import RotaryScaling, RotarySpec
from encoder_engine.families.rotary import angle_table, float32_angle_table
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.models.cases import VOCAB_SIZE

if TYPE_CHECKING:
    from encoder_engine.models import EncoderSpec

SIZES: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 256,
}
ORIGINAL = {"original_max_position_embeddings": 64}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    | {"high_freq_factor": 4.0}
    | ORIGINAL,
    "yarn": {"rope_type": "yarn", "factor": 4.0} | ORIGINAL,
    "yarn, factor of attention": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.7}
    | ORIGINAL,
    "yarn, mscale": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.8, "mscale_all_dim": 0.5}
    | ORIGINAL,
    "yarn, betas": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 20, "beta_slow": 2}
    | {"truncate": False}
    | ORIGINAL,
}


def rotary_of(config: dict[str, Any]) -> RotarySpec:
    rotary = spec_from_config(config).blocks[0].attention.rotary
    assert rotary is not None
    return rotary


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore:.*scaling factor")
def test_angles_are_those_of_transformers(name: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    settings = {"rope_theta": 5000.0, **SETTINGS[name]}
    sizes: dict[str, Any] = {key: value for key, value in SIZES.items() if key != "model_type"}
    theirs = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=dict(settings)))
    places = torch.arange(256)[None]
    cosines, sines = (x[0, :, :16].double() for x in theirs(torch.zeros(1), places))
    found = angle_table(rotary_of(SIZES | {"rope_parameters": settings}), 32, 256)
    # Their angles are in float32: off by 256 units in the last place of 1 at position 255.
    np.testing.assert_allclose(found[:, :16], cosines, atol=4e-5)
    np.testing.assert_allclose(found[:, 16:], sines, atol=4e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_written_as_they_are_read(name: str) -> None:
    spec = spec_from_config(SIZES | {"rope_parameters": {"rope_theta": 7.0, **SETTINGS[name]}})
    assert spec_from_config(spec_to_config(spec, {})) == spec


def test_older_files_have_two_keys() -> None:
    scaling = {"type": "linear", "factor": 2.0}
    found = rotary_of(SIZES | {"rope_theta": 9.0, "rope_scaling": scaling})
    assert found == RotarySpec(base=9.0, scaling=RotaryScaling(kind="linear", factor=2.0))
    assert rotary_of(SIZES | {"rope_theta": 9.0, "rope_scaling": None}) == RotarySpec(base=9.0)
    assert rotary_of(SIZES) == RotarySpec(base=10_000.0)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_two_different_scalings_are_refused(model_type: str) -> None:
    stated: dict[str, Any] = {"rope_theta": 9.0}
    if model_type == "gemma3_text":
        stated = {"full_attention": stated}
    config = SIZES | {"model_type": model_type, "rope_parameters": stated}
    with pytest.raises(ConfigError, match=r"rope_scaling.* differs from rope_parameters"):
        spec_from_config(config | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}})
    same = spec_from_config(config | {"rope_scaling": stated})
    assert same == spec_from_config(config)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"rope_type": "longrope"}, UnsupportedFeatureError, "supported: default, dynamic, linear"),
        ({"rope_type": "linear"}, ConfigError, "factor must be a number"),
        ({"rope_type": "linear", "factor": 0.0}, ConfigError, "needs factor > 0"),
        ({"rope_theta": 0}, ConfigError, "positive and finite, got 0"),
        ({"rope_theta": 1e400}, ConfigError, "positive and finite, got inf"),
        (SETTINGS["yarn"] | {"rope_theta": 1}, ConfigError, "finite, and not 1, got 1"),
        (
            {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4, "high_freq_factor": 4},
            ConfigError,
            "0 < low < high",
        ),
    ],
)
def test_settings_that_make_no_angles_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spec_from_config(SIZES | {"rope_parameters": settings})


@pytest.mark.parametrize("name", ["default", "yarn"])
def test_a_table_in_float32_is_the_rounded_one(name: str) -> None:
    rotary = rotary_of(SIZES | {"rope_parameters": {"rope_theta": 7.0, **SETTINGS[name]}})
    whole = angle_table(rotary, 6, 9000)
    np.testing.assert_array_equal(float32_angle_table(rotary, 6, 9000), whole.astype(np.float32))


def partial_spec() -> EncoderSpec:
    spec = spec_from_config(SIZES)
    return with_fact(spec, "blocks.attention.rotary", RotarySpec(base=100.0, fraction=0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_part_of_each_head_is_turned(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = ee.Encoder(partial_spec()).eval()
    assert module.get_submodule("blocks.0.attention.rotary")().shape == (256, 16)
    exact = ee.Encoder(partial_spec()).eval().double()
    module = module.to(dtype)
    exact.load_state_dict({k: v.double() for k, v in module.state_dict().items()})
    batch = pack([[5, 6, 7, 8, 9], [1], list(range(5, 60))])
    compiled = module.compile_for_inference()
    arrays = [x.numpy().astype(np.int32) for x in (batch.input_ids, batch.cu_seqlens)]
    with torch.inference_mode():
        rows = module(batch).last_hidden_state
        truth = exact(batch).last_hidden_state
    found = torch.from_numpy(compiled.hidden(*arrays)).to(dtype)
    assert_within_budget(found, rows, truth, terms=3 * 64)


def test_features_that_are_not_turned_know_no_position() -> None:
    from encoder_engine.models.attention import _turned

    table = torch.from_numpy(angle_table(RotarySpec(base=10.0, fraction=0.5), 8, 9)).float()
    query, key = torch.randn(9, 2, 8), torch.randn(9, 1, 8)
    found = _turned(query, key, ee.ops.Turn(table, torch.arange(9)))
    whole = ee.ops.rotary(
        query[..., :4].contiguous(), key[..., :4].contiguous(), table, torch.arange(9)
    )
    for one, turned, plain in zip(found, whole, (query, key), strict=True):
        assert torch.equal(one[..., :4], turned)
        assert torch.equal(one[..., 4:], plain[..., 4:])
