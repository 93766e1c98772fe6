"""Compiled copies follow every change of a weight, whether or not it leaves a trace."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import EncoderEngineWarning
from encoder_engine.inference import CompiledEncoder
from encoder_engine.integrations.acceleration import compiled_copy, replaced_forward
from encoder_engine.integrations.acceleration.patching import (
    apply_encoder_engine,
    revert_encoder_engine,
)
from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget
from tests.integrations.test_acceleration import batch_of, bert, hidden
from tests.models.cases import Case, one_per_family

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")


def stepped(kind: type[torch.optim.Optimizer]) -> Callable[[Any], None]:
    def step(model: Any) -> None:
        model(**batch_of(model)).last_hidden_state.square().sum().backward()
        kind(model.parameters(), lr=0.05, fused=True).step()  # type: ignore[call-arg]

    return step


def average(model: Any) -> None:
    for parameter in model.parameters():
        parameter.data.mul_(0.9)


def flip_one_bit(model: Any) -> None:
    weight = model.encoder.layer[2].output.dense.weight.data
    weight.view(torch.int32)[3, 5] ^= 1 << 22


def swap_rows(model: Any) -> None:
    weight = model.encoder.layer[0].attention.self.key.weight.data
    weight[[1, 2]] = weight[[2, 1]].clone()


def transpose(model: Any) -> None:
    weight = model.encoder.layer[0].attention.output.dense.weight
    weight.data = weight.data.T


def through_numpy(model: Any) -> None:
    model.encoder.layer[1].intermediate.dense.bias.detach().numpy()[:] += 1


CHANGES: dict[str, Callable[[Any], None]] = {
    "fused AdamW": stepped(torch.optim.AdamW),
    "fused Adam": stepped(torch.optim.Adam),
    "fused SGD": stepped(torch.optim.SGD),
    "fused Adagrad": stepped(torch.optim.Adagrad),
    "an average of weights": average,
    "one bit": flip_one_bit,
    "two rows swapped": swap_rows,
    "other strides": transpose,
    "NumPy": through_numpy,
}


@pytest.mark.parametrize("native", [True, False], ids=["hash", "copy"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_weight_is_computed_by(
    name: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(compiled_copy, "_hash", lambda _: None)
    model = accelerate(bert(), pack=True)
    before = hidden(model)
    CHANGES[name](model)
    found = hidden(model)
    assert not torch.equal(found, before)
    fresh = bert()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(hidden(accelerate(fresh, pack=True)), found)


@pytest.mark.parametrize("case", one_per_family(), ids=lambda case: case.model_type)
def test_bfloat16_is_computed_in_bfloat16_and_followed(case: Case) -> None:
    check_bfloat16(case.build())


def test_bfloat16_is_computed_in_bfloat16_and_followed_without_a_pooler() -> None:
    model = bert()
    pooled = model.state_dict()
    model = type(model)(model.config, add_pooling_layer=False).eval()
    model.load_state_dict(pooled, strict=False)
    check_bfloat16(model)


def check_bfloat16(wide: Any) -> None:
    model = copy.deepcopy(wide).to(torch.bfloat16)
    exact = accelerate(wide)
    for name, parameter in model.named_parameters():
        exact.get_parameter(name).data.copy_(parameter.data)
    plain, model = accelerate(copy.deepcopy(model)), accelerate(model, pack=True)
    before = compare_in_bfloat16(model, plain, exact)
    assert model.forward._compiled._encoder.dtype == "bfloat16"
    for name, parameter in model.named_parameters():
        parameter.data.view(-1)[-1].add_(1)
        for other in (plain, exact):
            other.get_parameter(name).data.copy_(parameter.data)
    assert not torch.equal(compare_in_bfloat16(model, plain, exact), before)


@torch.no_grad()
def compare_in_bfloat16(model: Any, plain: Any, exact: Any) -> torch.Tensor:
    batch = batch_of(model)
    found, expected, truth = model(**batch), plain(**batch), exact(**batch)
    assert list(found) == list(expected)
    for name in found:
        assert found[name].dtype == torch.bfloat16
        terms = 3 * found.last_hidden_state.shape[-1]
        true = truth[name].double()
        assert_within_budget(found[name], expected[name], true, name, terms=terms)
    return cast("torch.Tensor", found.last_hidden_state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tables_and_norms_are_shared_and_all_others_hashed(dtype: torch.dtype) -> None:
    model = accelerate(bert().to(dtype), pack=True)
    hidden(model)
    hashed = {id(tensor) for tensor in model.forward._compiled._content._tensors}
    for name, parameter in model.named_parameters():
        is_copied = "embeddings" not in name and "LayerNorm" not in name and "pooler" not in name
        assert (id(parameter) in hashed) == is_copied, name


def test_training_lets_go_of_the_compiled_copy() -> None:
    model = accelerate(bert(), pack=True)
    hidden(model)
    assert model.forward._compiled is not None
    for training in (True, False):
        hidden(model.train(training))
        assert (model.forward._compiled is None) == training
    again = model.forward._compiled
    hidden(model)
    assert model.forward._compiled is again


def test_restoring_lets_go_of_all_copies() -> None:
    model = accelerate(bert(), pack=True)
    hidden(model)
    replaced = model.forward
    restore(model)
    assert replaced._compiled is None
    assert replaced._shared is None


def test_a_copy_that_another_thread_lets_go_of_is_computed_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = accelerate(bert(), pack=True)
    before = hidden(model)

    def is_current(_: object) -> bool:
        model.forward._compiled = None
        return True

    monkeypatch.setattr(compiled_copy.CompiledCopy, "is_current", is_current)
    assert torch.equal(hidden(model), before)


@pytest.mark.parametrize("name", ["embeddings.position_embeddings", "pooler.dense"])
def test_a_weight_with_gaps_is_followed_too(name: str) -> None:
    model = bert()
    weight = model.get_submodule(name).weight
    weight.data = torch.cat([weight.data, weight.data], dim=1)[:, : weight.shape[1]]
    assert not weight.is_contiguous()
    accelerate(model, pack=True)
    batch = batch_of(model)
    with torch.no_grad():
        before = model(**batch)
        weight.data.mul_(2)
        after = model(**batch)
    assert not torch.equal(after.pooler_output, before.pooler_output)


# Blocks after the norm, before it, and with terms between tokens; the others in make test-all.
SHOWN = ("bert", "modernbert", "deberta-v2")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.model_type,
            marks=[pytest.mark.exhaustive] * (case.model_type not in SHOWN),
        )
        for case in one_per_family()
    ],
)
def test_every_family_is_compiled_and_follows_every_weight(case: Case) -> None:
    model = accelerate(case.build(), pack=True)
    before = hidden(model)
    assert model.forward._compiled is not None
    changed = 0
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            parameter.data.view(-1)[-1].add_(1)
        fresh = case.build()
        fresh.load_state_dict(model.state_dict())
        found = hidden(model)
        assert torch.equal(hidden(accelerate(fresh, pack=True)), found), name
        changed += not torch.equal(found, before)
        before = found
    assert changed > 5


def test_an_architecture_that_is_not_supported_is_told_of_and_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = hidden(accelerate(bert()))
    monkeypatch.setattr(CompiledEncoder, "supports", lambda _: "it is another one")
    with pytest.warns(EncoderEngineWarning, match="changes nothing for this bert model") as caught:
        model = accelerate(bert(), pack=True)
    assert [w.filename for w in caught] == [__file__]
    assert torch.equal(hidden(model), expected)
    assert model.forward._compiled is None


def test_a_model_of_a_patched_class_tells_at_its_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replaced_forward, "refuse_compiled", lambda _: "it is another one")
    apply_encoder_engine("bert", pack=True)
    try:
        model = bert()
    finally:
        revert_encoder_engine("bert")
    with pytest.warns(EncoderEngineWarning, match="nothing for this bert model: it is another one"):
        hidden(model)
    hidden(model)


def test_without_kernels_it_is_told_of_and_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = hidden(accelerate(bert()))
    monkeypatch.setattr(compiled_copy, "native_instruction_set", lambda: "portable")
    with pytest.warns(EncoderEngineWarning, match="no kernels for this processor"):
        model = accelerate(bert(), pack=True)
    assert torch.equal(hidden(model), expected)


def test_what_a_compiled_encoder_does_not_return_is_computed_as_without_it() -> None:
    plain, model = accelerate(bert()), accelerate(bert(), pack=True)
    batch = batch_of(model)
    positions = torch.arange(batch["input_ids"].shape[1])[None] + 3
    options: tuple[dict[str, Any], ...] = (
        {"output_hidden_states": True},
        {"output_attentions": True},
        {"position_ids": positions},
    )
    with torch.no_grad():
        for more in options:
            found = model(**batch, **more).last_hidden_state
            assert torch.equal(found, plain(**batch, **more).last_hidden_state)
        with ops.use("reference", operation="attention"):
            found = hidden(model)
            assert torch.equal(found, hidden(plain))
    assert model.forward._compiled is None


def test_threads_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = accelerate(bert(), pack=True)
    hidden(model)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    hidden(model)
    assert model.forward._compiled._encoder.num_threads == 3
