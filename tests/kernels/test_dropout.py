"""Dropout masks: uniform, independent of tiling, and the same in forward and backward."""

# A @triton.jit function is the kernel language, not Python.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from encoder_engine.kernels.attention.config import Launch
from encoder_engine.kernels.common.dropout import keep_scale, keep_weights
from encoder_engine.kernels.common.pinned import pin

from encoder_engine import ops
from encoder_engine.ops import gpu
from encoder_engine.packing import Sequences

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.skipif(
    DEVICE == "cpu" and not gpu.interpreted(), reason="neither a GPU nor TRITON_INTERPRET=1"
)
SEED, STREAM = 2**40 + 12345, 77


@triton.jit
def _draw_weights_kernel(
    kept_pointer, seed, stream, dropout, row_stride,
    ROWS: tl.constexpr, KEYS: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    first_row, row = tl.program_id(0) * ROWS, tl.arange(0, ROWS)
    first_key, key = tl.program_id(1) * KEYS, tl.arange(0, KEYS)
    rows, keys = first_row + row, first_key + key
    if TRANSPOSED:
        kept = keep_weights(
            seed, stream, (first_row, row[None, :]), (first_key, key[:, None]), dropout
        )
        tl.store(kept_pointer + rows[None, :] * row_stride + keys[:, None], kept)
    else:
        kept = keep_weights(
            seed, stream, (first_row, row[:, None]), (first_key, key[None, :]), dropout
        )
        tl.store(kept_pointer + rows[:, None] * row_stride + keys[None, :], kept)


@triton.jit
def _draw_features_kernel(
    scale_pointer, seed, dropout, first_row, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    scale = keep_scale(seed, first_row + rows, columns, dropout)
    tl.store(scale_pointer + rows[:, None] * WIDTH + columns[None, :], scale)


def draw_weights(
    dropout: float,
    *,
    block: tuple[int, int] = (512, 512),
    transposed: bool = False,
    seed: int = SEED,
    stream: int = STREAM,
) -> torch.Tensor:
    """Draw what is kept of 1,024 rows and 1,024 keys."""
    kept = torch.zeros(1024, 1024, dtype=torch.bool, device=DEVICE)
    _draw_weights_kernel[(1024 // block[0], 1024 // block[1])](
        kept, seed, stream, dropout, 1024, ROWS=block[0], KEYS=block[1], TRANSPOSED=transposed
    )
    return kept


def draw_features(dropout: float, first_row: int = 0) -> torch.Tensor:
    """Draw the factors of 512 rows of 512 features."""
    scale = torch.zeros(512, 512, device=DEVICE)
    _draw_features_kernel[(1,)](scale, SEED, dropout, first_row, ROWS=512, WIDTH=512)
    return scale


def assert_share(kept: torch.Tensor, dropout: float) -> None:
    """Hold the share of what is kept to five standard deviations."""
    deviation = (dropout * (1.0 - dropout) / kept.numel()) ** 0.5
    assert abs((~kept).double().mean().item() - dropout) < 5.0 * deviation


# 0.1 lies between 25 / 256 and 26 / 256: eight bits a weight would miss it by five deviations.
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9, 0.001])
def test_every_place_of_a_group_drops_the_share_asked_for(dropout: float) -> None:
    kept = draw_weights(dropout)
    assert_share(kept, dropout)
    grouped = kept.view(64, 16, 64, 16)
    for row in (0, 1, 8, 9):
        for key in (0, 1, 8, 9):
            assert_share(grouped[:, row, :, key], dropout)
    features = draw_features(dropout) > 0
    for place in range(8):
        assert_share(features.view(512, 64, 8)[:, :, place], dropout)


@pytest.mark.parametrize("kind", ["weights", "features"])
def test_places_that_share_a_call_are_as_good_as_independent(kind: str) -> None:
    dropout = 0.3
    if kind == "weights":
        kept = draw_weights(dropout).view(64, 2, 4, 2, 64, 2, 4, 2)
        places = kept.permute(1, 3, 5, 7, 0, 2, 4, 6).reshape(16, -1)
    else:
        places = (draw_features(dropout) > 0).view(-1, 8).T
    centred = (places.double() - (1.0 - dropout)) / (dropout * (1.0 - dropout)) ** 0.5
    correlation = centred @ centred.T / places.shape[1]
    correlation.fill_diagonal_(0.0)
    # Five deviations of independent draws, and the 2^-8 that rotations by a byte may share.
    assert correlation.abs().max() < 5.0 / places.shape[1] ** 0.5 + 2.0**-8


@pytest.mark.exhaustive
def test_a_mask_depends_on_places_alone() -> None:
    expected = draw_weights(0.3)
    for block in ((16, 1024), (256, 32)):
        for transposed in (False, True):
            assert torch.equal(draw_weights(0.3, block=block, transposed=transposed), expected)
    assert torch.equal(draw_features(0.3, 100)[:400], draw_features(0.3)[100:500])


def test_seeds_streams_and_far_rows_draw_anew() -> None:
    masks = [
        draw_weights(0.5),
        draw_weights(0.5, seed=SEED + 1),
        draw_weights(0.5, seed=SEED + 2**32),
        draw_weights(0.5, stream=STREAM + 1),
    ]
    rows = [draw_features(0.5), draw_features(0.5, 2**32)]
    for drawn in (masks, rows):
        for n, one in enumerate(drawn):
            for other in drawn[:n]:
                same = (one == other).double().mean().item()
                assert abs(same - 0.5) < 5.0 * 0.5 / one.numel() ** 0.5


def test_a_kept_feature_is_divided_by_its_probability() -> None:
    scale = draw_features(0.3)
    kept = scale[scale > 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1.0 / 0.7))


# (rows, keys) of the blocks of forward, of the query's gradient and of those of key and value.
SHAPES = [((64, 32), (32, 64), (16, 32)), ((16, 16), (16, 16), (32, 16))]


@pytest.mark.parametrize(
    ("shapes", "window"),
    [
        (SHAPES[0], None),
        (SHAPES[1], 5),
        pytest.param(SHAPES[0], 5, marks=pytest.mark.exhaustive),
        pytest.param(SHAPES[1], None, marks=pytest.mark.exhaustive),
    ],
)
def test_attentions_gradients_are_those_of_forwards_mask_whatever_the_blocks(
    shapes: tuple[tuple[int, int], ...], window: int | None
) -> None:
    layout = Sequences.from_lengths([40, 21], device=DEVICE)
    generator = torch.Generator().manual_seed(0)
    query, key, value, weights = (
        torch.randn(61, 2, 16, generator=generator).half().to(DEVICE) for _ in range(4)
    )

    def run(dtype: torch.dtype, **given: Any) -> list[torch.Tensor]:
        torch.manual_seed(3)
        leaves = [x.to(dtype).requires_grad_() for x in (query, key, value)]
        with pin(**given):
            output = ops.attention(
                leaves[0], leaves[1], leaves[2], layout,
                dropout=0.4, window=window, implementation="triton",
            )  # fmt: skip
            return [output, *torch.autograd.grad((output * weights).sum(), leaves)]

    names = ("attention_forward", "attention_query", "attention_key")
    pinned = {name: Launch(*shape, 4, 1) for name, shape in zip(names, shapes, strict=True)}
    expected = run(torch.float32, **pinned)
    # In half precision texts this short have one backward kernel, which draws both layouts.
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 2e-2)):
        for one, other in zip(run(dtype), expected, strict=True):
            torch.testing.assert_close(one.float(), other, rtol=tolerance, atol=tolerance)
