"""An accelerated model is saved and copied by every door, and what comes back is the same."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.integrations.acceleration.replaced_forward import ReplacedForward
from encoder_engine.integrations.transformers import accelerate, restore
from tests.integrations.test_acceleration import bert, hidden
from tests.models.cases import Case, one_per_family

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")


def by_save_model(model: Any, folder: Path) -> Any:
    from safetensors.torch import load_model, save_model

    save_model(model, str(folder / "model.safetensors"))
    fresh = type(model)(model.config).eval()
    load_model(fresh, str(folder / "model.safetensors"))
    return fresh


def by_save_file(model: Any, folder: Path) -> Any:
    from safetensors.torch import load_file, save_file

    save_file(model.state_dict(), folder / "model.safetensors")
    fresh = type(model)(model.config).eval()
    fresh.load_state_dict(load_file(folder / "model.safetensors"))
    return fresh


def by_torch_save(model: Any, folder: Path) -> Any:
    torch.save(model, folder / "model.pt")
    return torch.load(folder / "model.pt", weights_only=False)


def by_state_dict(model: Any, folder: Path) -> Any:
    torch.save(model.state_dict(), folder / "state.pt")
    fresh = type(model)(model.config).eval()
    fresh.load_state_dict(torch.load(folder / "state.pt"))
    return fresh


def by_pickle(model: Any, _: Path) -> Any:
    return pickle.loads(pickle.dumps(model))


def by_deepcopy(model: Any, _: Path) -> Any:
    return copy.deepcopy(model)


def by_save_pretrained(model: Any, folder: Path) -> Any:
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder)


DOORS: list[Callable[[Any, Path], Any]] = [
    by_save_model,
    by_save_file,
    by_torch_save,
    by_state_dict,
    by_pickle,
    by_deepcopy,
    by_save_pretrained,
]


@pytest.mark.parametrize("restored", [False, True], ids=["accelerated", "restored"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_door_gives_the_same_model(
    door: Callable[[Any, Path], Any], restored: bool, tmp_path: Path
) -> None:
    model = bert()
    plain, state = hidden(model), copy.deepcopy(model.state_dict())
    ours = hidden(accelerate(model, pack=True))
    if restored:
        restore(model)
    back = door(model, tmp_path)
    for found in (back.state_dict(), model.state_dict()):
        assert list(found) == list(state)
        assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    assert torch.equal(hidden(restore(back)), plain)
    assert torch.equal(hidden(accelerate(back, pack=True)), ours)
    assert torch.equal(hidden(restore(model)), plain)


def test_a_pickle_of_the_model_is_accelerated_until_it_is_restored() -> None:
    model = accelerate(bert())
    assert isinstance(pickle.loads(pickle.dumps(model)).forward, ReplacedForward)
    assert b"encoder_engine" not in pickle.dumps(restore(model))


@pytest.mark.parametrize("case", one_per_family(), ids=lambda case: case.model_type)
def test_parameters_share_no_memory_and_pickles_are_no_larger(case: Case) -> None:
    model = case.build()
    before = len(pickle.dumps(model))
    accelerate(model)
    for _ in ("accelerated", "restored"):
        storages = [p.untyped_storage() for p in model.parameters()]
        assert len({s.data_ptr() for s in storages}) == len(storages)
        assert all(
            s.nbytes() == p.nbytes for s, p in zip(storages, model.parameters(), strict=True)
        )
        assert len(pickle.dumps(restore(copy.deepcopy(model)))) <= 1.01 * before + 500
        restore(model)
    assert all(p.untyped_storage().resizable() for p in model.parameters())


def test_shared_memory_is_followed() -> None:
    model = accelerate(bert())
    before = hidden(model)
    model.share_memory()
    assert torch.equal(hidden(model), before)
    with torch.no_grad():
        model.encoder.layer[0].attention.self.key.weight.mul_(2)
    assert not torch.equal(hidden(model), before)


def test_parameters_within_somebodys_buffer_stay_there() -> None:
    model = bert()
    before = hidden(accelerate(bert()))
    flat = torch.cat([p.detach().view(-1) for p in model.parameters()])
    pieces = torch.split(flat, [p.numel() for p in model.parameters()])
    for parameter, piece in zip(model.parameters(), pieces, strict=True):
        parameter.data = piece.view_as(parameter)
    assert torch.equal(hidden(accelerate(model)), before)
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == 1
    flat.mul_(0.5)
    assert not torch.equal(hidden(model), before)


IDS = (torch.tensor([[2, 7, 9, 3]]), torch.ones(1, 4, dtype=torch.long))


@pytest.mark.filterwarnings("ignore")
def test_tracing_and_exporting_are_refused_until_restored() -> None:
    model = accelerate(bert(use_cache=False))
    message = r"call restore\(model\) first"
    untyped: Any = torch
    with pytest.raises(UnsupportedFeatureError, match=message):
        torch.export.export(model, IDS)
    with pytest.raises(RuntimeError, match=message):
        torch.export.export(model, IDS, strict=True)
    with pytest.raises(UnsupportedFeatureError, match=message):
        untyped.jit.trace(model, IDS)
    with pytest.raises(UnsupportedFeatureError, match=message):
        untyped.onnx.export(model, IDS, io.BytesIO(), dynamo=False)
    assert torch.export.export(restore(model), IDS) is not None


def test_compiling_leaves_an_accelerated_encoder_as_it_is() -> None:
    model = accelerate(bert())
    compiled: Any = torch.compile(model, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(*IDS).last_hidden_state, model(*IDS).last_hidden_state)
        model.encoder.layer[0].register_forward_hook(lambda *_: None)
        with pytest.raises(UnsupportedFeatureError, match="forward hook"):
            compiled(*IDS)
