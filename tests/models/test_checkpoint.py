"""Checkpoints that do not add up are refused with what is wrong; nothing is filled in silently."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import encoder_engine as ee
from encoder_engine.errors import (
    CheckpointFileError,
    ChecksumError,
    ConfigError,
    MissingPoolerWarning,
    NonFiniteWeightsError,
    SequenceLengthError,
    SuspiciousWeightsWarning,
    TensorNamesError,
    TensorShapeError,
    TokenIdError,
    UnknownConfigKeyWarning,
    UnknownModelTypeError,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.models.cases import CASES, one_per_family

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BERT = CASES[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bert")
    BERT.save(directory)
    return directory


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """Copy the saved model, for a test to damage."""
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def load(directory: Path, **keywords: Any) -> ee.Encoder:
    return ee.Encoder.from_pretrained(directory, device="cpu", **keywords)


def change_config(model: Path, **changes: Any) -> None:
    path = model / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not DROP}))


def change_weights(model: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = model / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


DROP = object()
BAD_CONFIGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model_type": "whisper"}, UnknownModelTypeError, "supported are albert, bart, bert"),
    ({"model_type": DROP}, UnknownModelTypeError, "None"),
    ({"model_type": ["bert"]}, UnknownModelTypeError, "supported"),
    ({"hidden_size": DROP}, ConfigError, "hidden_size must be .* is missing"),
    ({"hidden_size": "30"}, ConfigError, "integer"),
    ({"hidden_size": 0}, ConfigError, "at least 1"),
    ({"hidden_size": True}, ConfigError, "integer"),
    ({"hidden_size": 31}, ConfigError, "not a multiple"),
    ({"num_attention_heads": 0}, ConfigError, "at least 1"),
    ({"num_hidden_layers": -1}, ConfigError, "at least 1"),
    ({"hidden_size": 10**30}, ConfigError, "at most"),
    # Refused before a layer is built.
    ({"num_hidden_layers": 10**5}, TensorNamesError, "asks for 100000 layers"),
    ({"auto_map": {"AutoModel": "x.Model"}}, UnsupportedFeatureError, "auto_map"),
    ({"vocab_size": 1.5}, ConfigError, "vocab_size"),
    ({"hidden_dropout_prob": 1.0}, ConfigError, "below 1"),
    ({"hidden_dropout_prob": "none"}, ConfigError, "number"),
    ({"layer_norm_eps": -1e-5}, ConfigError, "layer_norm_eps"),
    ({"pad_token_id": 120}, ConfigError, "below vocab_size=120"),
    ({"hidden_act": "quick_gelu"}, UnsupportedFeatureError, "gelu_new"),
    ({"position_embedding_type": "relative_key"}, UnsupportedFeatureError, "'absolute'"),
    ({"is_decoder": True}, UnsupportedFeatureError, "is_decoder"),
    ({"add_cross_attention": True}, UnsupportedFeatureError, "cross"),
    ({"quantization_config": {"bits": 8}}, UnsupportedFeatureError, "quantization_config"),
    ({"num_hidden_layers": 4}, TensorNamesError, "missing encoder.layer.3"),
    ({"num_hidden_layers": 2}, TensorNamesError, "unexpected encoder.layer.2"),
    ({"vocab_size": 121}, TensorShapeError, r"word_embeddings.weight is \[120, 30\]"),
    ({"intermediate_size": 64}, TensorShapeError, "intermediate"),
    ({"max_position_embeddings": 512}, TensorShapeError, "position_embeddings"),
    ({"type_vocab_size": 1}, TensorShapeError, "token_type"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD_CONFIGS)
def test_a_config_that_does_not_fit_is_refused(
    model: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    change_config(model, **changes)
    with pytest.raises(error, match=message):
        load(model)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"bert"', "{'model_type': 'bert'}"])
def test_a_config_that_is_no_json_object_is_refused(model: Path, content: str) -> None:
    (model / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load(model)


def test_config_keys_nobody_reads_are_warned_of(model: Path) -> None:
    change_config(model, sliding_window=128, rope_theta=10000)
    with pytest.warns(UnknownConfigKeyWarning) as caught:
        load(model)
    assert isinstance(caught[0].message, UnknownConfigKeyWarning)
    assert caught[0].message.names == ("rope_theta", "sliding_window")


@pytest.mark.parametrize("case", one_per_family(), ids=lambda case: case.model_type)
def test_missing_and_unexpected_tensors_are_listed(case: Any, tmp_path: Path) -> None:
    case.save(tmp_path)
    dropped: list[str] = []

    def change(tensors: dict[str, torch.Tensor]) -> None:
        dropped.append(sorted(tensors)[-1])
        del tensors[dropped[0]]
        tensors["encoder.extra.weight"] = torch.zeros(1)

    change_weights(tmp_path, change)
    with pytest.raises(TensorNamesError) as caught:
        load(tmp_path)
    assert caught.value.missing == tuple(dropped)
    assert caught.value.unexpected == ("encoder.extra.weight",)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(model: Path) -> None:
    name = "encoder.layer.1.attention.self.key.weight"
    change_weights(model, lambda t: t.update({name: torch.zeros(30, 29)}))
    with pytest.raises(TensorShapeError) as caught:
        load(model)
    assert caught.value.mismatched == ((name, (30, 29), (30, 30)),)


@pytest.mark.parametrize("value", [torch.nan, -torch.nan, torch.inf, -torch.inf])
def test_non_finite_weights_are_refused_by_row(model: Path, value: float) -> None:
    def damage(tensors: dict[str, torch.Tensor]) -> None:
        tensors["embeddings.word_embeddings.weight"][17] = value

    change_weights(model, damage)
    with pytest.raises(NonFiniteWeightsError, match=r"word_embeddings.* first row 17"):
        load(model)


def test_a_flipped_exponent_bit_is_warned_of(model: Path) -> None:
    def damage(tensors: dict[str, torch.Tensor]) -> None:
        weights = tensors["encoder.layer.0.output.dense.weight"].numpy()
        weights.view(np.uint32)[3, 5] ^= 1 << 30

    change_weights(model, damage)
    with pytest.warns(SuspiciousWeightsWarning, match=r"layer\.0\.output\.dense") as caught:
        load(model)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("place", [-1, -5_000, 40])
def test_any_flipped_bit_is_found_where_checksums_are_recorded(
    saved: Path, tmp_path: Path, place: int
) -> None:
    load(saved).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ChecksumError, match=r"model\.safetensors has SHA-256"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("zz  model.safetensors", "is not '<sha256>"),
        ("0" * 64 + "  ../model.safetensors", "is not '<sha256>"),
        ("0" * 64 + "  vocab.txt", "is missing"),
    ],
)
def test_a_checksum_file_that_makes_no_sense_is_refused(
    model: Path, line: str, message: str
) -> None:
    (model / "SHA256SUMS").write_text(line + "\n")
    with pytest.raises(ChecksumError, match=message):
        load(model)


def test_integer_weights_are_refused(model: Path) -> None:
    change_weights(
        model, lambda t: t.update({"pooler.dense.bias": torch.zeros(30, dtype=torch.int8)})
    )
    with pytest.raises(CheckpointFileError, match=r"pooler.dense.bias is int8"):
        load(model)


def test_the_same_tensor_under_two_names_is_refused(model: Path) -> None:
    change_weights(model, lambda t: t.update({"bert.pooler.dense.bias": torch.zeros(30)}))
    with pytest.raises(TensorNamesError, match=r"pooler\.dense\.bias twice"):
        load(model)


TRUNCATIONS = [0, 4, 8, 100, -1]


@pytest.mark.parametrize("size", TRUNCATIONS)
def test_a_truncated_safetensors_file_is_refused(model: Path, size: int) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointFileError, match="safetensors"):
        load(model)


def test_a_safetensors_header_that_lies_is_refused(model: Path) -> None:
    path = model / "model.safetensors"
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header["pooler.dense.bias"]["data_offsets"][1] += 10**9
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + content[8 + size :])
    with pytest.raises(CheckpointFileError):
        load(model)


def to_bin(model: Path) -> Path:
    path = model / "pytorch_model.bin"
    torch.save(load_file(model / "model.safetensors"), path)
    (model / "model.safetensors").unlink()
    return path


def test_a_bin_checkpoint_loads_the_same_weights(model: Path) -> None:
    before = load(model).state_dict()
    to_bin(model)
    after = load(model).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_bin_checkpoint_that_runs_code_is_refused(model: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("executed",))

    path = to_bin(model)
    torch.save({"a": Harmful()}, path)
    with pytest.raises(CheckpointFileError, match="weights only"):
        load(model)


@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", [1, 2], {"a": 1}, {1: torch.ones(1)}]
)
def test_a_bin_that_is_no_dictionary_of_tensors_is_refused(model: Path, content: Any) -> None:
    path = to_bin(model)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(CheckpointFileError):
        load(model)


def shard(model: Path) -> Path:
    tensors = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, model / file)
    index = {"weight_map": {name: file for file, members in shards.items() for name in members}}
    path = model / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    return path


def test_sharded_checkpoints_load(model: Path) -> None:
    before = load(model).state_dict()
    shard(model)
    after = load(model).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": "absent.safetensors"}}',
        '{"weight_map": {"a": "../model.safetensors"}}',
    ],
)
def test_an_index_that_leads_nowhere_is_refused(model: Path, content: str) -> None:
    shard(model).write_text(content)
    with pytest.raises(CheckpointFileError, match="index"):
        load(model)


def test_directories_without_files_say_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFileError, match=r"no config\.json"):
        load(tmp_path)
    BERT.save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointFileError, match=r"model\.safetensors or pytorch_model\.bin"):
        load(tmp_path)
    with pytest.raises(CheckpointFileError, match="is a file"):
        load(tmp_path / "config.json")
    with pytest.raises(CheckpointFileError, match="there is no directory"):
        load(tmp_path / "absent")


def test_a_hub_id_offline_says_that_neither_is_there() -> None:
    with pytest.raises(
        CheckpointFileError, match="there is no directory nobody/nothing, and the hub"
    ):
        ee.Encoder.from_pretrained("nobody/nothing")


@pytest.mark.parametrize("head", ["BertForMaskedLM", "BertForPreTraining"])
def test_a_model_with_a_head_loads_its_encoder_and_says_what_stayed(
    head: str, tmp_path: Path
) -> None:
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, head)(transformers.BertConfig(**BERT.sizes)).eval()
    model.save_pretrained(tmp_path)
    with pytest.warns() as caught:
        encoder = load(tmp_path)
    kinds = {type(warning.message) for warning in caught}
    assert UnusedWeightsWarning in kinds
    assert (MissingPoolerWarning in kinds) == (head == "BertForMaskedLM")
    ids = torch.tensor([[7, 8, 9]])
    with torch.no_grad():
        ours = encoder(pack([[7, 8, 9]]))
        eager = model.bert(ids).last_hidden_state[0]
        truth = model.double().bert(ids).last_hidden_state[0]
    assert (ours.pooler_output is None) == (head == "BertForMaskedLM")
    assert_within_budget(ours.last_hidden_state, eager, truth, terms=3 * encoder.spec.width)


def test_tensorflow_norm_names_are_understood(model: Path) -> None:
    before = load(model).state_dict()

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in [n for n in tensors if "LayerNorm" in n]:
            old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
            tensors[old] = tensors.pop(name)

    change_weights(model, rename)
    after = load(model).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_dtype_and_quantization_are_honoured_or_refused(model: Path) -> None:
    assert load(model).dtype == torch.float32
    assert load(model, dtype="bfloat16").dtype == torch.bfloat16
    assert load(model, dtype=torch.float64).dtype == torch.float64
    for wrong in ("fp32", torch.int8):
        with pytest.raises(ConfigError, match="dtype must be"):
            load(model, dtype=wrong)
    with pytest.raises(UnsupportedFeatureError, match="int4"):
        load(model, quantization="int4")


@pytest.mark.parametrize("device", ["foo", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused(model: Path, device: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        ee.Encoder.from_pretrained(model, device=device)


def test_a_loaded_model_does_not_change_with_its_file(model: Path) -> None:
    encoder = load(model)
    before = encoder.embedding.tokens.weight.clone()
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-4096, 2)
        file.write(b"\xff" * 4096)
    assert torch.equal(encoder.embedding.tokens.weight, before)


def test_ids_and_lengths_that_do_not_fit_the_model_name_the_row(model: Path) -> None:
    encoder = load(model)
    with pytest.raises(TokenIdError, match="token id 120 at row 1, position 0"):
        encoder(pack([[1], [120]]))
    with pytest.raises(TokenIdError, match="token type id 2 at row 0"):
        encoder(pack([[1]], token_type_ids=[[2]]))
    with pytest.raises(SequenceLengthError, match="row 1 has 97 tokens, the model takes 96") as e:
        encoder(pack([[1], [1] * 97]))
    assert e.value.row == 1
    with pytest.raises(TypeError, match="PackedBatch"):
        encoder(torch.ones(1, 2, dtype=torch.int64))


def test_empty_batches_and_sequences_give_empty_results(model: Path) -> None:
    encoder = load(model)
    with torch.no_grad():
        assert encoder(pack([])).last_hidden_state.shape == (0, 30)
        out = encoder(pack([[], [5, 6], []]))
    assert out.last_hidden_state.shape == (2, 30)
    assert out.padded().shape == (3, 2, 30)
    assert not out.padded()[0].any()


def test_a_key_named_twice_in_the_config_is_refused(model: Path) -> None:
    path = model / "config.json"
    path.write_text(path.read_text().replace("{", '{"hidden_act": "gelu",', 1))
    with pytest.raises(ConfigError, match="'hidden_act' occurs twice"):
        load(model)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a": ' + "1" * 5000 + "}"], ids=["deep", "big"]
)
def test_json_that_breaks_the_parser_is_refused(model: Path, content: str) -> None:
    (model / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load(model)


def test_a_tensor_in_two_shards_is_refused(model: Path) -> None:
    shard(model)
    second = load_file(model / "model-2.safetensors")
    first = load_file(model / "model-1.safetensors")
    name = sorted(first)[0]
    save_file(second | {name: first[name] + 1}, model / "model-2.safetensors")
    with pytest.raises(CheckpointFileError, match="expects in model-1"):
        load(model)


def test_weights_that_float16_cannot_hold_are_refused(model: Path) -> None:
    def enlarge(tensors: dict[str, torch.Tensor]) -> None:
        tensors["pooler.dense.bias"][0] = 7e4

    change_weights(model, enlarge)
    with pytest.raises(NonFiniteWeightsError, match=r"pooler\.dense\.bias .* 65504"):
        load(model, dtype="float16")


def test_sparse_and_eight_bit_weights_are_refused(model: Path) -> None:
    path = to_bin(model)
    tensors = torch.load(path, weights_only=True)
    for wrong in (torch.zeros(30).to_sparse(), torch.zeros(30).to(torch.float8_e4m3fn)):
        torch.save(tensors | {"pooler.dense.bias": wrong}, path)
        with pytest.raises(CheckpointFileError, match=r"pooler\.dense\.bias is"):
            load(model)


def test_a_batch_used_for_inference_can_train(model: Path) -> None:
    encoder, batch = load(model), pack([[5, 6, 7], [8], [9, 9, 9]])
    with torch.inference_mode():
        encoder(batch)
    encoder.train()
    torch.autograd.backward(encoder(batch).last_hidden_state.sum())
    assert encoder.embedding.tokens.weight.grad is not None
