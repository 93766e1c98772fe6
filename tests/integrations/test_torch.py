"""Accelerated ``nn.TransformerEncoder``: the same numbers and gradients, and the way back."""

from __future__ import annotations

import copy
import doctest
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from encoder_engine.errors import ShapeError, UnsupportedFeatureError
from encoder_engine.integrations import torch as integration
from encoder_engine.integrations.torch import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget, largest

# PyTorch says that it will not take its own fast path.
pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*begin with padding"),
]
WIDTH, LENGTHS = 30, (9, 1, 40, 40, 3)
LAYERS: list[dict[str, Any]] = [
    {},
    {"norm_first": True, "activation": "gelu"},
    {"batch_first": True, "activation": nn.GELU(approximate="tanh")},
    {"batch_first": True, "norm_first": True, "bias": False, "layer_norm_eps": 1e-3},
]


def make(*, final_norm: bool = True, dropout: float = 0.0, **layer: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    one = nn.TransformerEncoderLayer(WIDTH, 3, 50, dropout=dropout, **layer)
    encoder = nn.TransformerEncoder(one, 3, nn.LayerNorm(WIDTH) if final_norm else None)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder


def inputs(encoder: Any, *, left: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw rows; say what is padding, and what is none as the result is laid out."""
    generator = torch.Generator().manual_seed(1)
    src = torch.randn(len(LENGTHS), max(LENGTHS), WIDTH, generator=generator)
    keep = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    keep = keep.flip(1) if left else keep
    if encoder.layers[0].self_attn.batch_first:
        return src, ~keep, keep
    return src.transpose(0, 1), ~keep, keep.T


def rows_and_gradients(encoder: Any, *, left: bool, dtype: torch.dtype) -> list[torch.Tensor]:
    src, padding, keep = inputs(encoder, left=left)
    src = src.to(dtype).requires_grad_()
    rows = encoder(src, src_key_padding_mask=padding)[keep]
    weights = torch.linspace(-1, 1, rows.numel(), dtype=torch.float64).to(dtype)
    (rows * weights.view_as(rows)).sum().backward()
    assert src.grad is not None
    found = [rows.detach(), src.grad[keep], *(p.grad.clone() for p in encoder.parameters())]
    encoder.zero_grad()
    return found


@pytest.mark.parametrize("final_norm", [False, True], ids=["", "final-norm"])
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_rows_and_gradients_are_within_budget(
    layer: dict[str, Any], left: bool, final_norm: bool
) -> None:
    encoder = make(final_norm=final_norm, **layer)
    eager = rows_and_gradients(encoder, left=left, dtype=torch.float32)
    truth = rows_and_gradients(copy.deepcopy(encoder).double(), left=left, dtype=torch.float64)
    found = rows_and_gradients(accelerate(encoder), left=left, dtype=torch.float32)
    size = largest(*truth)
    for place, values in enumerate(zip(found, eager, truth, strict=True)):
        assert_within_budget(*values, f"{place}", terms=3 * WIDTH + sum(LENGTHS), size=size)


@torch.no_grad()
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_padding_is_zero_and_masks_may_be_numbers(layer: dict[str, Any]) -> None:
    encoder = accelerate(make(**layer)).eval()
    src, padding, keep = inputs(encoder)
    found = encoder(src, src_key_padding_mask=padding)
    assert found.shape == src.shape
    assert not found[~keep].any()
    added = torch.zeros(padding.shape).masked_fill(padding, -torch.inf)
    assert torch.equal(encoder(src, src_key_padding_mask=added), found)
    text = src[:, 2] if keep.shape[0] == max(LENGTHS) else src[2]
    whole = found[:, 2] if keep.shape[0] == max(LENGTHS) else found[2]
    assert torch.equal(encoder(text), whole)


@torch.no_grad()
def test_the_way_back_is_bit_for_bit() -> None:
    outer = nn.Sequential(nn.Linear(WIDTH, WIDTH), make(batch_first=True)).eval()
    src, state = torch.randn(2, 5, WIDTH), copy.deepcopy(outer.state_dict())
    plain = outer(src)
    ours = accelerate(outer)(src)
    assert not torch.equal(ours, plain)
    assert torch.equal(copy.deepcopy(outer)(src), ours)
    assert torch.equal(pickle.loads(pickle.dumps(outer))(src), ours)
    assert torch.equal(restore(outer)(src), plain)
    assert list(outer.state_dict()) == list(state)
    assert all(torch.equal(outer.state_dict()[name], tensor) for name, tensor in state.items())
    assert torch.equal(restore(outer)(src), plain)


def test_what_becomes_of_the_module_is_followed() -> None:
    encoder = accelerate(make(dropout=0.5, batch_first=True))
    src = torch.randn(2, 5, WIDTH)
    assert not torch.equal(encoder(src), encoder(src))
    for layer in encoder.layers:
        layer.self_attn.dropout = layer.dropout.p = layer.dropout1.p = layer.dropout2.p = 0.0
    first = encoder(src)
    assert torch.equal(encoder(src), first)
    assert torch.equal(encoder.eval()(src), first)
    encoder(src).sum().backward()
    torch.optim.SGD(encoder.parameters(), lr=0.1).step()
    assert not torch.equal(encoder(src), first)
    assert encoder.double()(src.double()).dtype == torch.float64


def test_what_is_not_computed_here_is_refused() -> None:
    encoder = accelerate(make())
    src = torch.randn(4, 2, WIDTH)
    with pytest.raises(UnsupportedFeatureError, match="mask"):
        encoder(src, mask=nn.Transformer.generate_square_subsequent_mask(4))
    with pytest.raises(UnsupportedFeatureError, match="0 and -inf"):
        encoder(src, src_key_padding_mask=torch.full((2, 4), -1.0))
    with pytest.raises(ShapeError, match=r"\[4, 2\]"):
        encoder(src, src_key_padding_mask=torch.zeros(4, 2, dtype=torch.bool))
    with pytest.raises(UnsupportedFeatureError, match="Linear"):
        accelerate(nn.Linear(2, 2))
    with pytest.raises(UnsupportedFeatureError, match="activation"):
        accelerate(make(activation=torch.tanh))
    changed = make()
    changed.layers[1].linear1 = nn.Sequential(nn.Linear(WIDTH, 50))
    with pytest.raises(UnsupportedFeatureError, match="Sequential"):
        accelerate(changed)


class Doubling(nn.TransformerEncoder):
    """A subclass that computes something else."""

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return twice what the encoder computes."""
        found: torch.Tensor = 2 * super().forward(*args, **kwargs)
        return found


def test_a_subclass_keeps_its_own_forward() -> None:
    both = nn.ModuleList([make(), Doubling(make().layers[0], 2)])
    with pytest.raises(UnsupportedFeatureError, match="Doubling"):
        accelerate(both)
    assert "forward" not in both[0].__dict__


def test_what_is_refused_halfway_changes_nothing() -> None:
    both = nn.ModuleList([make(), make()])
    theirs = both[1].forward
    both[1].forward = theirs
    with pytest.raises(UnsupportedFeatureError, match="something else"):
        accelerate(both)
    assert "forward" not in both[0].__dict__
    del both[1].forward
    accelerate(both[0])
    both[1].forward = theirs
    with pytest.raises(UnsupportedFeatureError, match="something else"):
        restore(both)
    assert "forward" in both[0].__dict__
    del both[1].forward
    assert "forward" not in restore(both)[0].__dict__


def test_the_documented_example_runs() -> None:
    assert doctest.testmod(integration).failed == 0
