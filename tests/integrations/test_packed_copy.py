"""Packed copies follow every change of a weight, whether or not it leaves a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.integrations import packed_copy
from encoder_engine.integrations.transformers import accelerate, restore
from tests.integrations.test_acceleration import batch_of, bert, hidden

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
        monkeypatch.setattr(packed_copy, "_hasher", lambda: None)
    model = accelerate(bert(), pack=True)
    before = hidden(model)
    CHANGES[name](model)
    found = hidden(model)
    assert not torch.equal(found, before)
    fresh = bert()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(hidden(accelerate(fresh, pack=True)), found)


def test_training_lets_go_of_the_packed_copy() -> None:
    model = accelerate(bert(), pack=True)
    hidden(model)
    assert model.forward._packed is not None
    for training in (True, False):
        hidden(model.train(training))
        assert (model.forward._packed is None) == training
    again = model.forward._packed
    hidden(model)
    assert model.forward._packed is again


def test_restoring_lets_go_of_all_copies() -> None:
    model = accelerate(bert(), pack=True)
    hidden(model)
    replaced = model.forward
    restore(model)
    assert replaced._packed is None
    assert replaced._shared is None


def test_a_copy_that_another_thread_lets_go_of_is_computed_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = accelerate(bert(), pack=True)
    before = hidden(model)

    def is_current(_: object) -> bool:
        model.forward._packed = None
        return True

    monkeypatch.setattr(packed_copy.PackedCopy, "is_current", is_current)
    assert torch.equal(hidden(model), before)
