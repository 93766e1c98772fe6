"""What configurations say in ways of their own: older words, defaults, and what is refused."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.families.config import spec_from_config, spec_to_config
from encoder_engine.families.facts.paths import fact, with_fact
from encoder_engine.families.facts.spec import RotarySpec
from encoder_engine.inference.saving import save_checkpoint
from encoder_engine.models import heads
from encoder_engine.packing import pack
from tests.models.cases import CASES, Case
from tests.models.test_families import token_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
SIZES = {
    "vocab_size": 120,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
}
MODERN = {k: v for k, v in SIZES.items() if k != "type_vocab_size"} | {
    "model_type": "modernbert",
    "pad_token_id": 0,
}
T5 = {
    "model_type": "t5",
    "vocab_size": 120,
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 32,
}
DEBERTA = SIZES | {
    "model_type": "deberta-v2",
    "relative_attention": True,
    "share_att_key": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
}
NEW = SIZES | {"model_type": "new", "position_embedding_type": "rope"}
LONGFORMER = SIZES | {"model_type": "longformer", "attention_window": 8}
GEMMA = MODERN | {"model_type": "gemma3_text"}
ULTRA = MODERN | {"model_type": "ultrabert"}
BIG_BIRD = SIZES | {"model_type": "big_bird"}
ALBERT = SIZES | {"model_type": "albert", "embedding_size": 12, "num_hidden_groups": 2}


def windows(config: dict[str, Any]) -> list[int | None]:
    return [block.attention.window for block in spec_from_config(config).blocks]


def test_modernbert_in_the_words_of_its_first_checkpoints() -> None:
    first = MODERN | {
        "global_attn_every_n_layers": 2,
        "local_attention": 10,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 5000.0,
    }
    spec = spec_from_config(first)
    assert windows(first) == [None, 5, None, 5]
    bases = [block.attention.rotary.base for block in spec.blocks if block.attention.rotary]
    assert bases == [160000.0, 5000.0, 160000.0, 5000.0]
    assert [block.attention_norm for block in spec.blocks] == [False, True, True, True]
    written = spec_to_config(spec, first)
    assert "global_attn_every_n_layers" not in written
    assert written["layer_types"] == ["full_attention", "sliding_attention"] * 2
    assert spec_from_config(written) == spec


def test_what_modernbert_leaves_out_is_as_published() -> None:
    spec = spec_from_config(MODERN)
    assert windows(MODERN) == [None, 64, 64, None]
    assert fact(spec, "blocks.norm.epsilon") == 1e-5
    assert not fact(spec, "blocks.norm.bias")
    same = spec_from_config(MODERN | {"local_rope_theta": None, "global_rope_theta": 9.0})
    assert {block.attention.rotary.base for block in same.blocks if block.attention.rotary} == {9.0}


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    (MODERN | {"layer_types": ["full_attention"]}, ConfigError, "1 layers, there are 4"),
    (
        MODERN | {"layer_types": ["other"] * 4},
        ConfigError,
        "layer_types.* must be one of full_attention",
    ),
    (MODERN | {"global_attn_every_n_layers": 0}, ConfigError, "global_attn_every_n_layers"),
    (MODERN | {"rope_parameters": [1]}, ConfigError, "must be an object"),
    (MODERN | {"rope_parameters": {"rope_theta": 9.0}}, ConfigError, "object of full_attention"),
    (ULTRA | {"rope_parameters": {"sliding_attention": {}}}, ConfigError, "full_attention must be"),
    (GEMMA | {"rope_parameters": {"rope_theta": 9.0}}, ConfigError, "object of full_attention"),
    (
        MODERN | {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
        UnsupportedFeatureError,
        "yarn",
    ),
    *(
        (
            MODERN | {"model_type": name, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            UnsupportedFeatureError,
            "rope_scaling=.*linear.* is not supported",
        )
        for name in ("modernbert", "ultrabert", "gte", "nomic_bert")
    ),
    (MODERN | {"norm_bias": 1}, ConfigError, "true or false"),
    (MODERN | {"hidden_activation": "relu"}, UnsupportedFeatureError, "gated"),
    (T5 | {"feed_forward_proj": "gated-relu"}, UnsupportedFeatureError, "gated-relu"),
    (T5 | {"feed_forward_proj": ["relu"]}, UnsupportedFeatureError, "feed_forward_proj"),
    (T5 | {"relative_attention_num_buckets": 1}, ConfigError, "a multiple of 4 buckets"),
    (T5 | {"relative_attention_max_distance": 8}, ConfigError, "more than a quarter"),
    (T5 | {"relative_attention_max_distance": 0}, ConfigError, "relative_attention_max_distance"),
    (DEBERTA | {"relative_attention": False}, UnsupportedFeatureError, "relative_attention"),
    (DEBERTA | {"pos_att_type": None}, UnsupportedFeatureError, "pos_att_type"),
    (DEBERTA | {"pos_att_type": ["p2p"]}, UnsupportedFeatureError, "p2p"),
    (DEBERTA | {"pos_att_type": [["p2c"]]}, UnsupportedFeatureError, "pos_att_type"),
    (DEBERTA | {"conv_kernel_size": 4}, ConfigError, "odd"),
    (
        DEBERTA | {"conv_kernel_size": 3, "conv_act": "relu"},
        UnsupportedFeatureError,
        "conv_act",
    ),
    (DEBERTA | {"norm_rel_ebd": "batch_norm"}, UnsupportedFeatureError, "batch_norm"),
    (DEBERTA | {"embedding_size": 12}, UnsupportedFeatureError, "embedding_size"),
    (DEBERTA | {"position_buckets": 1}, ConfigError, "must be even and at least 4"),
    (
        DEBERTA | {"position_buckets": 32, "max_relative_positions": 17},
        ConfigError,
        "more than half of them",
    ),
    (DEBERTA | {"position_buckets": "many"}, ConfigError, "position_buckets"),
    (NEW | {"rope_scaling": {"type": "linear", "factor": 2}}, UnsupportedFeatureError, "linear"),
    (
        NEW | {"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0.5}},
        UnsupportedFeatureError,
        "mixed_b",
    ),
    (NEW | {"position_embedding_type": "absolute"}, UnsupportedFeatureError, "rope"),
    (BIG_BIRD, UnsupportedFeatureError, "attention_type='block_sparse', for the key is missing"),
    (
        BIG_BIRD | {"attention_type": "block_sparse"},
        UnsupportedFeatureError,
        "attention_type='block_sparse' is not supported; supported: 'original_full'",
    ),
    (LONGFORMER | {"attention_window": 7}, ConfigError, "even"),
    (LONGFORMER | {"attention_window": [8, 8]}, ConfigError, "2 windows for 4 layers"),
    (ALBERT | {"num_hidden_groups": 5}, ConfigError, "4 layers to share"),
    (ALBERT | {"inner_group_num": 2}, UnsupportedFeatureError, "inner_group_num"),
    (GEMMA | {"query_pre_attn_scalar": 0}, ConfigError, "query_pre_attn_scalar .* above 0"),
    (SIZES | {"model_type": "mpnet", "pad_token_id": 0}, UnsupportedFeatureError, "pad_token_id"),
]


@pytest.mark.parametrize(("config", "error", "message"), REFUSED, ids=lambda x: str(x)[-40:])
@pytest.mark.filterwarnings("ignore::encoder_engine.errors.UnknownConfigKeyWarning")
def test_what_a_quirk_does_not_know_is_refused(
    config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        spec_from_config(config)


def test_deberta_without_buckets_reaches_as_far_as_its_texts() -> None:
    spec = spec_from_config(DEBERTA | {"pos_att_type": "p2c"})
    vectors = spec.distance_vectors
    assert vectors is not None
    assert (vectors.num_buckets, vectors.max_distance, vectors.num_vectors) == (None, 64, 128)
    attention = spec.blocks[0].attention
    assert attention.disentangled == ("key",)
    assert attention.scale == (8 * 2) ** -0.5
    assert spec_from_config(spec_to_config(spec, {})) == spec


@pytest.mark.parametrize("older", [{}, {"rope_theta": [7.0, 7.0, 8.0, 7.0]}])
def test_bases_that_ultrabert_leaves_out_are_those_of_transformers(older: dict[str, Any]) -> None:
    from transformers import UltrabertConfig

    kinds = {"full_attention": {}, "sliding_attention": {"rope_type": "default"}}
    given = ULTRA | older | {"rope_parameters": kinds}
    spec = spec_from_config(given)
    sizes: Any = {key: value for key, value in deepcopy(given).items() if key != "model_type"}
    theirs: Any = UltrabertConfig(**sizes)
    assert spec.blocks[0].attention.window == 128
    for block, kind in zip(spec.blocks, theirs.layer_types, strict=True):
        assert block.attention.rotary == RotarySpec(base=theirs.rope_parameters[kind]["rope_theta"])


def test_full_attention_of_a_big_bird_is_written() -> None:
    spec = spec_from_config(BIG_BIRD | {"attention_type": "original_full"})
    assert spec_to_config(spec, {})["attention_type"] == "original_full"


def test_blocks_of_albert_are_shared_in_runs() -> None:
    spec = spec_from_config(ALBERT)
    assert (len(spec.blocks), spec.order, spec.num_layers) == (2, (0, 0, 1, 1), 4)


@pytest.mark.parametrize(
    ("config", "path", "value"),
    [
        (MODERN, "blocks.attention.scale", 2.0),
        (MODERN, "blocks.norm_first", False),
        (T5, "blocks.attention.scale", None),
        (LONGFORMER, "blocks.attention.window", None),
        (SIZES | {"model_type": "bert"}, "blocks.attention.window", 3),
        (SIZES | {"model_type": "bert"}, "blocks.feed_forward.down_bias", False),
    ],
)
def test_a_spec_that_its_family_cannot_say_is_not_written(
    config: dict[str, Any], path: str, value: object
) -> None:
    spec = spec_from_config(config)
    if path == "blocks.norm_first":
        blocks = tuple(replace(block, attention_norm=True) for block in spec.blocks)
        spec = replace(spec, blocks=blocks)
    with pytest.raises(ConfigError):
        spec_to_config(with_fact(spec, path, value), config)


def first(model_type: str) -> Case:
    return next(case for case in CASES if case.model_type == model_type)


def test_the_encoder_of_a_whole_t5_is_found_and_its_decoder_left(tmp_path: Path) -> None:
    case = first("t5")
    sizes = case.sizes | {"num_decoder_layers": 1}
    whole = Case("t5", "T5Config", "T5ForConditionalGeneration", sizes).save(tmp_path)
    with pytest.warns(UnusedWeightsWarning, match=r"decoder\.block\.0"):
        encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    ids = token_rows([9])
    with torch.no_grad():
        found = encoder(pack(ids)).last_hidden_state
        expected = whole.get_encoder()(torch.tensor(ids)).last_hidden_state[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"feed_forward_proj": "relu", "dense_act_fn": "gelu_new"},
        {"feed_forward_proj": "gated-gelu", "dense_act_fn": "silu"},
        {"feed_forward_proj": "relu", "is_gated_act": True, "dense_act_fn": "gelu"},
        {"feed_forward_proj": "gated-gelu", "is_gated_act": False, "dense_act_fn": "relu"},
        {"feed_forward_proj": "gated-silu"},
    ],
)
def test_a_t5_computes_by_its_own_activation_and_gate_whatever_their_name_says(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    theirs = first("t5").save(tmp_path, **changes)
    assert theirs.config.to_dict().items() >= changes.items()
    ids = token_rows([9])
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    encoder.save_pretrained(tmp_path / "again")
    again = ee.Encoder.from_pretrained(tmp_path / "again", device="cpu")
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).last_hidden_state[0]
        for model in (encoder, again):
            torch.testing.assert_close(model(pack(ids)).last_hidden_state, expected)
    for refused in ({"dense_act_fn": "selu"}, {"is_gated_act": True}, {"dense_act_fn": "silu"}):
        with pytest.raises(UnsupportedFeatureError, match=r"supported|activated by one of"):
            spec_from_config(T5 | refused)


def test_copies_of_a_tensor_are_checked_and_let_go(tmp_path: Path) -> None:
    first("t5").save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    again = "encoder.embed_tokens.weight"
    save_file(tensors | {again: tensors["shared.weight"].clone()}, path)
    expected = ee.Encoder.from_pretrained(tmp_path, device="cpu").state_dict()
    alone = {name: x for name, x in tensors.items() if name != "shared.weight"}
    save_file(alone | {again: tensors["shared.weight"]}, path)
    found = ee.Encoder.from_pretrained(tmp_path, device="cpu").state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    save_file(tensors | {again: tensors["shared.weight"] + 1}, path)
    with pytest.raises(CheckpointFileError, match=r"should equal shared\.weight, but"):
        ee.Encoder.from_pretrained(tmp_path, device="cpu")


def test_an_older_head_that_holds_its_vocabulary_twice_is_read(tmp_path: Path) -> None:
    bert = first("bert")
    Case("bert", "BertConfig", "BertForMaskedLM", bert.sizes).save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    twice = {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].clone(),
    }
    save_file(tensors | twice, path)
    model = heads.MaskedLM.from_pretrained(tmp_path, device="cpu")
    model.save_pretrained(tmp_path / "again")
    after = load_file(tmp_path / "again" / "model.safetensors")
    assert after.keys() == tensors.keys()
    assert all(torch.equal(after[name], tensors[name]) for name in tensors)


ROFORMER = SIZES | {"model_type": "roformer", "embedding_size": 24}


def test_roformer_turns_pairs_of_features_of_query_key_and_value() -> None:
    spec = spec_from_config(ROFORMER | {"rotary_value": True})
    assert fact(spec, "blocks.attention.rotary.turns_values")
    assert spec_to_config(spec, {})["rotary_value"] is True
    with pytest.raises(ConfigError, match="heads of 3 features have no pairs"):
        spec_from_config(ROFORMER | {"hidden_size": 9})
    with pytest.raises(UnsupportedFeatureError, match="is_decoder"):
        spec_from_config(ROFORMER | {"is_decoder": True})


FIRST_DEBERTA = {k: v for k, v in DEBERTA.items() if k != "share_att_key"} | {
    "model_type": "deberta"
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("talking_head", True),
        ("relative_attention", False),
        ("position_biased_input", True),
        ("pos_att_type", []),
        ("embedding_size", 12),
    ],
)
def test_what_the_first_deberta_does_not_support_is_refused(key: str, value: object) -> None:
    assert spec_from_config(FIRST_DEBERTA).blocks[0].attention.distance_projections
    with pytest.raises(UnsupportedFeatureError, match=f"{key}="):
        spec_from_config(FIRST_DEBERTA | {key: value})


def test_a_bias_of_keys_that_no_checkpoint_stores_is_not_saved(tmp_path: Path) -> None:
    encoder = ee.Encoder(spec_from_config(FIRST_DEBERTA))
    encoder.save_pretrained(tmp_path / "zero")
    encoder = ee.Encoder.from_pretrained(tmp_path / "zero", device="cpu")
    width = encoder.spec.width
    with torch.no_grad():
        encoder.state_dict()["blocks.1.attention.qkv.bias"][width + 3] = 0.5
    with pytest.raises(UnsupportedFeatureError, match="further rows, which must be zero"):
        encoder.save_pretrained(tmp_path / "other")
    compiled = encoder.compile_for_inference()
    with pytest.raises(UnsupportedFeatureError, match="further rows, which must be zero"):
        save_checkpoint(compiled, tmp_path / "compiled")
