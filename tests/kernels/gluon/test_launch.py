"""Attention in Gluon runs on request alone, and says which calls it cannot take."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.packing import Sequences

triton = pytest.importorskip("triton", reason="triton is not installed")

from encoder_engine.kernels.attention import operator  # noqa: E402
from encoder_engine.kernels.attention.blocks import Blocks  # noqa: E402
from encoder_engine.kernels.attention.config import (  # noqa: E402
    GLUON_LAUNCHES,
    Extras,
    Launch,
    choose_launches,
)
from encoder_engine.kernels.attention.differentiable import Call  # noqa: E402
from encoder_engine.kernels.attention.gluon import launch  # noqa: E402
from encoder_engine.kernels.common.pinned import pin  # noqa: E402

LISTED = torch.zeros(1, dtype=torch.int32)


def make_call(
    *, shape: tuple[int, int, int] = (8, 2, 64), dtype: torch.dtype = torch.float16, **terms: Any
) -> Call:
    heads = torch.zeros(shape, dtype=dtype)
    given: dict[str, Any] = dict.fromkeys(Call._fields) | {"query_MHD": heads, "key_TKD": heads}
    given |= {"value_TKD": heads, "causal": False}
    return Call(**(given | terms))


def make_blocks(**lists: torch.Tensor) -> Blocks:
    return Blocks(**(dict.fromkeys(Blocks._fields, LISTED[:0]) | lists))


@pytest.mark.parametrize("head_dim", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_no_call_gets_it_unasked(head_dim: int, itemsize: int) -> None:
    launches = choose_launches(head_dim, itemsize=itemsize, extras=Extras(), hopper=True)
    assert isinstance(launches.forward, Launch)
    assert not launches.gluon_gradients


def test_a_request_for_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    query = torch.zeros(8, 2, 64, dtype=torch.float16)
    layout = Sequences.from_lengths([8])
    with (
        pin(attention_forward=GLUON_LAUNCHES[64, 128]),
        pytest.raises(ValueError, match="it needs an H100 or H200, the tensors are on cpu"),
    ):
        ops.attention(query, query, query, layout, implementation="triton")


def test_gradients_on_another_device_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    query = torch.zeros(8, 2, 64, dtype=torch.float16, requires_grad=True)
    lse = torch.zeros(2, 8)
    monkeypatch.setattr(operator, "attention_forward", lambda call, *_: (call.query_MHD + 0, lse))
    with pin(attention_gluon_gradients=True):
        output = ops.attention(
            query, query, query, Sequences.from_lengths([8]), implementation="triton"
        )
    # Chosen as the output was computed.
    with pytest.raises(ValueError, match="it needs an H100 or H200, the tensors are on cpu"):
        torch.autograd.backward(output.sum())


@pytest.mark.parametrize(
    ("call", "blocks", "reason"),
    [
        ({"dtype": torch.float32}, {}, "bfloat16 and float16, not torch.float32"),
        ({"shape": (8, 2, 32)}, {}, "heads are [64, 128] wide, these are 32"),
        ({"bias_HR": LISTED}, {}, "it has no bias"),
        ({"slopes_H": LISTED, "seed": LISTED}, {}, "it has no slopes and no dropout"),
        ({"window": 4, "causal": True}, {}, "it has no window and no causal border"),
        ({"entries_R": LISTED}, {}, "it has no positions"),
        ({}, {"places": LISTED}, "it has no query rows"),
        ({}, {"global_places": LISTED}, "it has no global rows"),
        ({"value_TKD": torch.zeros(1, 2, 64).expand(8, 2, 64)}, {}, "TMA reads rows"),
    ],
)
def test_what_it_cannot_take_is_told(
    call: dict[str, Any],
    blocks: dict[str, torch.Tensor],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "has_wgmma", lambda _: True)
    reason = launch.refuse(make_call(**call), make_blocks(**blocks), {64, 128})
    assert reason is not None
    assert reason in reason


def test_a_plain_call_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "has_wgmma", lambda _: True)
    for head_dim, _ in GLUON_LAUNCHES:
        assert launch.refuse(make_call(shape=(8, 2, head_dim)), make_blocks(), {64, 128}) is None
