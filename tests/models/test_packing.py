"""An encoder packed for inference computes and saves the same, and can go back."""

from __future__ import annotations

import copy
import os
import pickle
import platform
import subprocess
import sys
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch

import encoder_engine as ee
from encoder_engine import ops
from encoder_engine.errors import ImplementationError, UnsupportedFeatureError
from encoder_engine.models.linear import Linear, replace_layers
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.ops.packed_linear import PackedFacts
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests import ROOT
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id
from tests.ops.cases import skip_if_refused

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.packing import PackedBatch


@pytest.fixture(params=["native", "aten"], autouse=True)
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have weights laid out for one or the other, whichever this processor would choose."""
    name: str = request.param
    skip_if_refused("packed_linear", name, PackedFacts())
    monkeypatch.setattr(ops, "pack_weight", partial(ops.pack_weight, implementation=name))
    return name


def load(case: Case, folder: Path) -> ee.Encoder:
    case.save(folder)
    return ee.Encoder.from_pretrained(folder, device="cpu")


@pytest.fixture
def plain(tmp_path: Path) -> ee.Encoder:
    """Load a small ELECTRA, whose embedding is projected."""
    return load(next(case for case in CASES if case.model_type == "electra"), tmp_path)


@pytest.fixture
def batch() -> PackedBatch:
    """Draw three sequences."""
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randint(5, VOCAB_SIZE, (n,), generator=generator).tolist() for n in (9, 1, 30)]
    return pack(drawn)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_family_computes_the_same_packed(
    case: Case, batch: PackedBatch, tmp_path: Path
) -> None:
    encoder = load(case, tmp_path)
    with torch.inference_mode():
        truth = copy.deepcopy(encoder).double()(batch).last_hidden_state
        expected = encoder(batch).last_hidden_state
        found = encoder.pack()(batch).last_hidden_state
    assert_within_budget(found, expected, truth, terms=3 * encoder.spec.width)


def test_state_saving_and_pickling_are_those_of_the_plain_encoder(
    plain: ee.Encoder, batch: PackedBatch, tmp_path: Path
) -> None:
    state = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    packed = plain.pack()
    assert packed.packed
    assert list(packed.state_dict()) == list(state)
    packed.save_pretrained(tmp_path / "saved")
    again = ee.Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    for name, tensor in state.items():
        assert torch.equal(packed.state_dict()[name], tensor), name
        assert torch.equal(again.state_dict()[name], tensor), name
    with torch.inference_mode():
        expected = packed(batch).last_hidden_state
        for other in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
            assert other.packed
            assert torch.equal(other(batch).last_hidden_state, expected)


def test_unpacking_gives_everything_back(plain: ee.Encoder, batch: PackedBatch) -> None:
    state = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    with torch.inference_mode():
        expected = plain(batch).last_hidden_state
        assert torch.equal(plain.pack().unpack()(batch).last_hidden_state, expected)
    assert not plain.packed
    assert list(plain.state_dict()) == list(state)
    assert all(torch.equal(plain.state_dict()[name], state[name]) for name in state)
    plain.train()(batch).last_hidden_state.sum().backward()
    assert all(p.grad is not None for n, p in plain.named_parameters() if "pooler" not in n)


def test_what_was_frozen_stays_frozen(plain: ee.Encoder) -> None:
    plain.embedding.requires_grad_(False)
    before = {name: p.requires_grad for name, p in plain.named_parameters()}
    packed = pickle.loads(pickle.dumps(plain.pack().pack()))
    for unpacked in (plain.double(), packed.unpack()):
        assert {name: p.requires_grad for name, p in unpacked.named_parameters()} == before


def test_a_packed_encoder_is_cast_and_packed_again(plain: ee.Encoder, batch: PackedBatch) -> None:
    expected = copy.deepcopy(plain).to(torch.bfloat16).pack()
    found = plain.pack().to(torch.bfloat16)
    assert found.packed
    with torch.inference_mode():
        assert torch.equal(found(batch).last_hidden_state, expected(batch).last_hidden_state)
    assert not found.double().packed


def test_layers_are_let_go_of_one_by_one_and_stay_shared() -> None:
    shared = Linear(2, 2)
    module = torch.nn.ModuleList([shared, Linear(2, 2), torch.nn.Sequential(shared), Linear(2, 2)])
    del shared
    made: list[weakref.ref[Linear]] = []

    def make(layer: Linear) -> torch.nn.Module:
        assert all(earlier() is None for earlier in made)
        made.append(weakref.ref(layer))
        return layer.pack()

    replace_layers(module, Linear, make)
    assert len(made) == 3
    assert module[0] is module[2][0]  # type: ignore[index]
    assert not any(isinstance(layer, Linear) for layer in module.modules())


def test_a_packed_encoder_does_not_train(plain: ee.Encoder) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"unpack\(\)"):
        plain.pack().train()
    plain.eval()


def test_float64_is_not_packed(plain: ee.Encoder) -> None:
    wide = plain.double()
    assert not wide.packable
    with pytest.raises(ImplementationError, match="float64"):
        wide.pack()
    assert not wide.packed


LOAD_IN_BFLOAT16 = """
import sys, torch
import encoder_engine as ee
from encoder_engine import ops
encoder = ee.Encoder.from_pretrained(sys.argv[1], device="cpu", dtype="bfloat16").eval()
if encoder.packable:
    encoder.pack()
with torch.inference_mode():
    found = encoder(ee.packing.pack([[5, 6, 7]])).last_hidden_state
assert found.isfinite().all()
told = dict(ops.explain("packed_linear", dtype="bfloat16"))
print("packed" if encoder.packed else "plain", told["aten"], sep=": ")
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["native"], indirect=True)  # of this process
@pytest.mark.parametrize(("instruction_set", "found"), [("avx2", "packed"), ("portable", "plain")])
def test_bfloat16_infers_where_onednn_has_no_products_of_it(
    plain: ee.Encoder, tmp_path: Path, instruction_set: str, found: str
) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("oneDNN is told to do without AVX-512")
    if native_instruction_set() in (None, "portable"):
        pytest.skip("the extension is told to use AVX2")
    plain.save_pretrained(tmp_path / "saved")
    ran = subprocess.run(
        [sys.executable, "-c", LOAD_IN_BFLOAT16, str(tmp_path / "saved")],
        cwd=ROOT,
        env={
            **os.environ,
            "ENCODER_ENGINE_ISA": instruction_set,
            "ONEDNN_MAX_CPU_ISA": "AVX2",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{found}: oneDNN multiplies no bfloat16"), ran.stdout
