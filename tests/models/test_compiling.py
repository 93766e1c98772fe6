"""A compiled module computes the module's bits; a module that was changed is refused by name."""

from __future__ import annotations

import copy
import os
import pickle
import platform
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    TensorNamesError,
    TensorShapeError,
    UnsupportedFeatureError,
)
from encoder_engine.inference import CompiledEncoder
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor
from encoder_engine.models.layers import Block
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.ops.testing import assert_within_budget
from tests import ROOT
from tests.inference.native_module import use_native_products
from tests.inference.test_compiled_encoder import BERT, PRECISIONS, arrays, draw_batch
from tests.models.all_cases import with_each
from tests.models.cases import CASES, Case, case_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

pytestmark = pytest.mark.filterwarnings("ignore:.*pooler weights")


def load(case: Case, folder: Path, precision: str = "float32") -> ee.Encoder:
    case.save(folder)
    dtype, quantization = PRECISIONS[precision]
    return ee.Encoder.from_pretrained(folder, device="cpu", dtype=dtype, quantization=quantization)


def compute(compiled: CompiledEncoder) -> npt.NDArray[np.float32]:
    return compiled.hidden(*arrays(draw_batch()))


@pytest.fixture
def module(tmp_path: Path) -> ee.Encoder:
    """Load a small BERT."""
    return load(BERT, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), with_each(PRECISIONS), ids=case_id)
def test_every_family_has_the_bits_of_native_operations(
    case: Case, precision: str, tmp_path: Path
) -> None:
    module = load(case, tmp_path, precision)
    compiled = module.compile_for_inference()
    assert compiled.fingerprint() == (
        CompiledEncoder.from_pretrained(tmp_path, *PRECISIONS[precision]).fingerprint()
    )
    found = compute(compiled)
    if module.quantization is None:
        with torch.inference_mode():
            eager = module(draw_batch()).last_hidden_state
            truth = copy.deepcopy(module).double()(draw_batch()).last_hidden_state
        found_TD = torch.from_numpy(found).to(module.dtype)
        assert_within_budget(found_TD, eager, truth, terms=3 * module.spec.width)
    # The module's convolution is not a product of compiled encoders.
    if native_instruction_set() != "portable" and module.spec.convolution is None:
        use_native_products(module)
        with torch.inference_mode():
            expected = module(draw_batch()).last_hidden_state.float().numpy()
        np.testing.assert_array_equal(found, expected)


def test_an_architecture_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    module = load(next(case for case in CASES if case.model_type == "t5"), tmp_path)
    bias = module.spec.relative_bias
    assert bias is not None
    spec = next(
        spec
        for spec in (
            replace(module.spec, relative_bias=replace(bias, max_distance=distance))
            for distance in range(20, 2000)
        )
        if CompiledEncoder.supports(spec) is not None
    )
    with pytest.raises(UnsupportedFeatureError, match="on the border of two buckets"):
        ee.Encoder(spec).compile_for_inference()


def test_an_encoder_without_blocks_gives_its_embeddings(module: ee.Encoder) -> None:
    bare = ee.Encoder(replace(module.spec, blocks=())).eval()
    found = torch.from_numpy(compute(bare.compile_for_inference()))
    with torch.inference_mode():
        expected = bare.embedding(draw_batch())
        truth = bare.double().embedding(draw_batch())
    assert_within_budget(found, expected, truth, terms=module.spec.width)
    # Instead of portable kernels, a module calls PyTorch's.
    if native_instruction_set() not in (None, "portable"):
        assert torch.equal(found, expected)


def test_other_precisions_are_those_of_the_file(module: ee.Encoder, tmp_path: Path) -> None:
    for dtype, quantization in PRECISIONS.values():
        found = module.compile_for_inference(dtype, quantization)
        expected = CompiledEncoder.from_pretrained(tmp_path, dtype, quantization)
        np.testing.assert_array_equal(compute(found), compute(expected))
        assert found.fingerprint() == expected.fingerprint()
    half = module.compile_for_inference(torch.bfloat16)
    assert half.dtype == "bfloat16"
    wide = module.double()
    with pytest.raises(ConfigError, match=r"got 'torch\.float64'"):
        wide.compile_for_inference()
    assert wide.compile_for_inference("float32").dtype == "float32"
    with pytest.raises(UnsupportedFeatureError, match="quantization='int4'"):
        wide.compile_for_inference("float32", "int4")


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_later_changes_of_the_module_change_nothing(precision: str, tmp_path: Path) -> None:
    module = load(BERT, tmp_path, precision)
    compiled = module.compile_for_inference()
    before = compute(compiled)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2)
    np.testing.assert_array_equal(compute(compiled), before)


def test_a_module_goes_on_training_and_compiles_again(module: ee.Encoder) -> None:
    before = compute(module.train().compile_for_inference())
    assert module.training
    module(draw_batch()).last_hidden_state.square().sum().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    assert not np.array_equal(compute(module.compile_for_inference()), before)


def test_a_compiled_module_is_saved_with_its_configuration(
    module: ee.Encoder, tmp_path: Path
) -> None:
    compiled = module.compile_for_inference()
    compiled.save_compiled(tmp_path / "compiled")
    mapped = CompiledEncoder.from_pretrained(tmp_path / "compiled")
    np.testing.assert_array_equal(compute(mapped), compute(compiled))
    bare = ee.Encoder(module.spec).compile_for_inference()
    with pytest.raises(ConfigError, match="without a configuration"):
        bare.save_compiled(tmp_path / "bare")


class Doubling(Block):
    """A block that computes something else."""

    def forward(self, *given: Any) -> Any:
        hidden, probabilities = super().forward(*given)
        return 2 * hidden, probabilities


class Half(ee.Encoder):
    """An encoder that computes something else."""

    def forward(self, *given: Any, **options: Any) -> Any:
        return super().forward(*given, **options)


def other_norm(encoder: Any) -> None:
    norm = encoder.blocks[1].attention_norm
    norm.spec = type(norm.spec)(epsilon=0.5)


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "hook": (
        lambda e: e.blocks[1].attention.output.register_forward_hook(lambda *_: None),
        r"blocks\.1\.attention\.output has hooks",
    ),
    "hook on the encoder": (
        lambda e: e.register_forward_pre_hook(lambda *_: None),
        "the encoder has hooks",
    ),
    "own forward": (
        lambda e: setattr(e.blocks[0].attention, "forward", torch.relu),
        r"blocks\.0\.attention has hooks or a forward",
    ),
    "another class": (
        lambda e: setattr(e.blocks[1], "__class__", Doubling),
        r"blocks\.1 is a Doubling, not a Block",
    ),
    "another encoder": (lambda e: setattr(e, "__class__", Half), "a forward of its own"),
    "wrapped layer": (
        lambda e: setattr(e.blocks[0].attention, "qkv", torch.nn.Sequential()),
        r"qkv is a Sequential, not a Linear",
    ),
    "another block": (
        lambda e: e.blocks.insert(0, e.blocks[1]),
        r"there is blocks\.3 where .* is expected",
    ),
    "missing norm": (
        lambda e: setattr(e.blocks[0], "attention_norm", None),
        r"there is .* where blocks\.0\.attention_norm is expected",
    ),
    "another epsilon": (other_norm, r"blocks\.1\.attention_norm has the specification NormSpec"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_modules_are_refused(name: str, module: ee.Encoder) -> None:
    change, message = CHANGES[name]
    change(module)
    with pytest.raises(UnsupportedFeatureError, match=message):
        module.compile_for_inference()


def test_parameters_that_do_not_fit_are_refused(module: ee.Encoder) -> None:
    state = {name: to_array(tensor) for name, tensor in module.state_dict().items()}
    short = state | {"final_norm.weight": state.pop("embedding.norm.bias")}
    with pytest.raises(
        TensorNamesError, match=r"missing \['embedding.norm.bias'\]; unexp"
    ) as caught:
        CompiledEncoder.from_parameters(module.spec, short)
    assert caught.value.unexpected == ("final_norm.weight",)
    module.blocks[0].attention.qkv.weight = torch.nn.Parameter(torch.zeros(3, 5))  # type: ignore[union-attr]
    with pytest.raises(TensorShapeError, match=r"qkv.weight is \[3, 5\], expected"):
        module.compile_for_inference()


def test_epsilons_of_norms_may_be_given(module: ee.Encoder, tmp_path: Path) -> None:
    state = {name: to_array(tensor) for name, tensor in module.state_dict().items()}
    name = "blocks.1.feed_forward_norm"
    compiled = CompiledEncoder.from_parameters(
        module.spec, state, config=module.config, epsilons={name: 0.5}
    )
    found = compute(compiled)
    compiled.save_compiled(tmp_path / "compiled")
    mapped = CompiledEncoder.from_pretrained(tmp_path / "compiled")
    for other in (mapped, pickle.loads(pickle.dumps(compiled))):
        np.testing.assert_array_equal(compute(other), found)
    norm: Any = module.get_submodule(name)
    norm.spec = type(norm.spec)(epsilon=0.5)
    with torch.inference_mode():
        eager = module(draw_batch()).last_hidden_state
        truth = copy.deepcopy(module).double()(draw_batch()).last_hidden_state
    found_TD = torch.from_numpy(found)
    assert_within_budget(found_TD, eager, truth, terms=3 * module.spec.width)


def test_parameters_that_have_the_dtype_are_shared(module: ee.Encoder) -> None:
    state = {name: to_array(tensor) for name, tensor in module.state_dict().items()}
    compiled = CompiledEncoder.from_parameters(module.spec, state)
    before = compute(compiled)
    with torch.no_grad():
        module.embedding.tokens.weight.mul_(2)
    assert not np.array_equal(compute(compiled), before)


def test_arrays_and_tensors_are_one_memory() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int8):
        tensor = torch.arange(6).view(2, 3).to(dtype)
        again = to_tensor(to_array(tensor))
        assert torch.equal(again, tensor)
        assert again.data_ptr() == tensor.data_ptr()
        assert again.dtype == dtype


IN_BFLOAT16 = """
import sys, numpy as np, torch
import encoder_engine as ee
module = ee.Encoder.from_pretrained(sys.argv[1], device="cpu", dtype="bfloat16")
truth = ee.Encoder.from_pretrained(sys.argv[1], device="cpu", dtype="float64")
batch = ee.packing.pack([[5, 6, 7]])
with torch.inference_mode():
    found = module(batch).last_hidden_state
    truth = truth(batch).last_hidden_state
rows = module.compile_for_inference().hidden(np.array([5, 6, 7]), np.array([0, 3]))
from encoder_engine.ops.testing import assert_within_budget
compiled = torch.from_numpy(rows).bfloat16()
assert_within_budget(compiled, found, truth, terms=3 * module.spec.width)
"""


@pytest.mark.slow
@pytest.mark.parametrize("instruction_set", ["avx2", "portable"])
def test_bfloat16_infers_where_onednn_has_no_products_of_it(
    instruction_set: str, module: ee.Encoder, tmp_path: Path
) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("AVX-512 is switched off for oneDNN")
    subprocess.run(
        [sys.executable, "-c", IN_BFLOAT16, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "ENCODER_ENGINE_ISA": instruction_set, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        check=True,
    )


@pytest.mark.parametrize("with_config", [True, False], ids=["config", "no config"])
def test_a_module_is_not_loaded_from_a_compiled_encoder(
    module: ee.Encoder, tmp_path: Path, with_config: bool
) -> None:
    folder = tmp_path / "compiled"
    module.compile_for_inference().save_compiled(folder)
    if with_config:
        (folder / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    message = r"compiled encoder \(compiled.safetensors\).*by CompiledEncoder.from_pretrained"
    with pytest.raises(CheckpointFileError, match=message):
        ee.Encoder.from_pretrained(folder)
    assert CompiledEncoder.from_pretrained(folder).dtype == "float32"


def test_weights_beside_a_compiled_encoder_are_loaded(module: ee.Encoder, tmp_path: Path) -> None:
    module.compile_for_inference().save_compiled(tmp_path)
    assert ee.Encoder.from_pretrained(tmp_path).spec == module.spec
