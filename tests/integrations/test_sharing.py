"""Parameters stay where they lie: whoever else holds their memory changes the model, and is told.

A weight may be two's: of two layers, of query and key, of a ``state_dict`` taken before, of other
processes, of an optimiser's buffer. An accelerated model computes by what the plain one does.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget
from tests.integrations.sums import terms_of
from tests.integrations.test_acceleration import batch_of, bert, hidden
from tests.models.exact import exact, in_float64

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")


def query_is_key(model: Any) -> None:
    for layer in model.encoder.layer:
        layer.attention.self.key.weight = layer.attention.self.query.weight


def same_memory(model: Any) -> None:
    first, second = (layer.attention.self.query.weight for layer in model.encoder.layer[:2])
    second.data = first.data


def part_of_memory(model: Any) -> None:
    for layer in model.encoder.layer:
        heads = layer.attention.self
        flat = torch.cat([heads.query.bias, heads.key.bias]).detach()
        heads.query.bias.data, heads.key.bias.data = flat.chunk(2)


SHARED: dict[str, Callable[[Any], object]] = {
    "query and key are one": query_is_key,
    "two layers' queries lie in one place": same_memory,
    "biases in one buffer": part_of_memory,
    "nothing": lambda _: None,
}


@torch.no_grad()
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("name", SHARED)
def test_a_change_through_any_name_of_the_memory_is_computed_by(name: str, pack: bool) -> None:
    model = bert()
    SHARED[name](model)
    held = model.state_dict()
    places = [p.data_ptr() for p in model.parameters()]
    hidden(accelerate(model, pack=pack))
    query = model.encoder.layer[0].attention.self.query
    query.weight.mul_(3)
    query.bias.add_(0.5)
    held["encoder.layer.2.attention.self.value.weight"].mul_(1.5)
    keep = batch_of(model)["attention_mask"].bool()
    ours = hidden(model)
    assert [p.data_ptr() for p in model.parameters()] == places
    plain = restore(model)
    with in_float64():
        truth = hidden(exact(plain))
    assert_within_budget(ours[keep], hidden(plain)[keep], truth[keep], terms=terms_of(plain))
    assert [p.data_ptr() for p in model.parameters()] == places


def test_memory_shared_with_processes_after_acceleration_stays_shared() -> None:
    model = accelerate(bert())
    hidden(model)
    model.share_memory()
    hidden(model)
    restore(model)
    assert all(p.is_shared() for p in model.parameters())


def test_an_alias_held_by_numpy_stays_one() -> None:
    model = bert()
    weight = model.encoder.layer[1].attention.self.key.weight
    seen = weight.detach().numpy()
    before = hidden(accelerate(model))
    seen *= 2
    after = hidden(model)
    assert not torch.equal(before, after)
    assert torch.equal(hidden(accelerate(copy.deepcopy(restore(model)))), after)
