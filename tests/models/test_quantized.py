"""Encoders in 8-bit integers: near the plain one, saved bit for bit, honest at limits."""

from __future__ import annotations

import copy
import json
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch.nn import ModuleList
from transformers.pytorch_utils import Conv1D

import encoder_engine as ee
from encoder_engine import _native
from encoder_engine.embedding.accuracy import COSINE_CLASSES
from encoder_engine.errors import (
    CheckpointFileError,
    TensorNamesError,
    UnsupportedFeatureError,
)
from encoder_engine.inference.options import resolve_dtype as compiled_dtype
from encoder_engine.models.linear import Linear, replace_layers
from encoder_engine.models.placement import resolve_dtype
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.inference.test_compiled_encoder import arrays
from tests.models.all_cases import with_each
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id
from tests.models.exact import exact, in_float64
from tests.models.test_families import LENGTHS, by_transformers, token_rows

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.packing import PackedBatch

MINIMUM = COSINE_CLASSES["int8"].mean_cosine


def load(directory: Path, **options: Any) -> ee.Encoder:
    return ee.Encoder.from_pretrained(directory, device="cpu", **options)


@pytest.fixture
def batch() -> PackedBatch:
    """Draw three sequences."""
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randint(5, VOCAB_SIZE, (n,), generator=generator).tolist() for n in (9, 1, 30)]
    return pack(drawn)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Save a small BERT with transformers."""
    CASES[0].save(tmp_path / "plain")
    return tmp_path / "plain"


def eight_bits(values: torch.Tensor) -> torch.Tensor:
    """Round each row to 255 steps around zero."""
    step = values.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    return (values / step).round() * step


def round_dense_layers(model: Any) -> Any:
    """Round the weights and inputs of the dense layers in a model's blocks to eight bits.

    transformers' own model so becomes what int8 is: one step for each output feature of a weight,
    and one for each token of an input.
    """
    stacks = [one for one in model.modules() if isinstance(one, ModuleList)]
    for layer in {layer for stack in stacks for layer in stack.modules()}:
        if not isinstance(layer, torch.nn.Linear | Conv1D):
            continue
        rows = layer.weight.mT if isinstance(layer, Conv1D) else layer.weight
        rows.data.copy_(eight_bits(rows.data))
        layer.register_forward_pre_hook(lambda _, given: (eight_bits(given[0]), *given[1:]))
    return model


@pytest.mark.parametrize(("case", "precision"), with_each(["float32", "bfloat16"]), ids=case_id)
def test_every_family_rounds_as_transformers_would(
    case: Case, precision: str, tmp_path: Path
) -> None:
    dtype: torch.dtype = getattr(torch, precision)
    model, rows = case.save(tmp_path), token_rows(LENGTHS)
    batch = pack(rows, token_type_ids=[[0] * len(row) for row in rows])
    with in_float64():
        truth = torch.cat(by_transformers(exact(model), rows, padded=False)["last_hidden_state"])
    module = load(tmp_path, dtype=dtype, quantization="int8")
    assert module.quantization == "int8"
    with torch.inference_mode():
        found = module(batch).last_hidden_state
        hidden = module.compile_for_inference().hidden(*arrays(batch))
    assert found.dtype == module.dtype == dtype
    rounded = by_transformers(round_dense_layers(model).to(dtype), rows, padded=False)
    eager = torch.cat(rounded["last_hidden_state"])
    for ours in (found, torch.from_numpy(hidden).to(dtype)):
        assert_within_budget(ours, eager, truth, terms=3 * module.spec.width)
    # The mean is what the int8 class of benchmarks asks for.
    assert MINIMUM is not None
    assert F.cosine_similarity(found.double(), truth).mean() >= MINIMUM


def test_saving_loading_copying_and_pickling_keep_every_bit(
    model: Path, batch: PackedBatch, tmp_path: Path
) -> None:
    encoder = load(model, quantization="int8")
    encoder.save_pretrained(tmp_path / "int8")
    with torch.inference_mode():
        expected = encoder(batch).last_hidden_state
        for other in (
            load(tmp_path / "int8"),
            load(tmp_path / "int8", quantization="int8"),
            copy.deepcopy(encoder),
            pickle.loads(pickle.dumps(encoder)),
        ):
            assert other.quantization == "int8"
            assert torch.equal(other(batch).last_hidden_state, expected)
    weights = load_file(tmp_path / "int8" / "model.safetensors")
    name = "encoder.layer.0.attention.self.key"
    assert weights[f"{name}.weight"].dtype == torch.int8
    assert weights[f"{name}.weight_scale"].shape == weights[f"{name}.bias"].shape
    assert not any(".embeddings." in n and t.dtype == torch.int8 for n, t in weights.items())


def test_a_quantized_checkpoint_takes_about_a_quarter(tmp_path: Path) -> None:
    CASES[0].save(tmp_path / "plain", hidden_size=120, intermediate_size=480)
    load(tmp_path / "plain", quantization="int8").save_pretrained(tmp_path / "int8")
    sizes = [(tmp_path / kind / "model.safetensors").stat().st_size for kind in ("plain", "int8")]
    assert sizes[1] < sizes[0] / 2


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("weight", lambda t: t.float(), CheckpointFileError, r"float32; config\.json says"),
        ("weight_scale", lambda t: 0 * t, CheckpointFileError, "scales are above zero"),
        ("weight_scale", lambda _t: None, TensorNamesError, "weight_scale"),
    ],
)
def test_a_damaged_checkpoint_is_refused(
    name: str, change: Any, error: type[Exception], message: str, model: Path, tmp_path: Path
) -> None:
    target = tmp_path / "int8"
    load(model, quantization="int8").save_pretrained(target)
    weights = load_file(target / "model.safetensors")
    key = f"encoder.layer.1.output.dense.{name}"
    changed = change(weights.pop(key))
    if changed is not None:
        weights[key] = changed.contiguous()
    (target / "SHA256SUMS").unlink()
    save_file(weights, target / "model.safetensors")
    with pytest.raises(error, match=message):
        load(target)


def test_another_quantization_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "int8"
    load(model, quantization="int8").save_pretrained(target)
    config = json.loads((target / "config.json").read_text("utf-8"))
    config["quantization_config"]["weights"] = "int4"
    (target / "SHA256SUMS").unlink()
    (target / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(UnsupportedFeatureError, match="int4"):
        load(target)


def test_what_integers_cannot_do_is_refused(model: Path) -> None:
    encoder = load(model, quantization="int8")
    with pytest.raises(UnsupportedFeatureError, match="cannot be trained"):
        encoder.train()
    with pytest.raises(UnsupportedFeatureError, match="neither moved nor cast"):
        encoder.to(torch.bfloat16)
    with pytest.raises(UnsupportedFeatureError, match="float64"):
        load(model, dtype="float64", quantization="int8")
    assert not any(parameter.requires_grad for parameter in encoder.parameters())


def test_layers_are_let_go_of_one_by_one_and_stay_shared() -> None:
    shared = Linear(2, 2)
    module = torch.nn.ModuleList([shared, Linear(2, 2), torch.nn.Sequential(shared), Linear(2, 2)])
    del shared
    made: list[weakref.ref[Linear]] = []

    def make(layer: Linear) -> torch.nn.Module:
        assert all(earlier() is None for earlier in made)
        made.append(weakref.ref(layer))
        return layer.quantize()

    replace_layers(module, Linear, make)
    assert len(made) == 3
    assert module[0] is module[2][0]  # type: ignore[index]
    assert not any(isinstance(layer, Linear) for layer in module.modules())


@pytest.mark.parametrize(("level", "dtype"), [("avx2", "float32"), ("bf16", "bfloat16")])
def test_auto_is_the_dtype_of_a_compiled_encoder(
    level: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's question about AVX-512 says nothing of arm64, nor of a level that was asked for."""
    monkeypatch.setattr(_native, "instruction_set", lambda: level)
    assert resolve_dtype("auto", quantized=True) == getattr(torch, dtype)
    assert compiled_dtype("auto", quantized=True) == dtype
