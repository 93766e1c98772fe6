"""Every pooling mode within the numeric budget, and zeros for an empty sequence."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ShapeError, UnknownNameError
from encoder_engine.ops.pooling import WIDEST_TRITON, PoolingFacts
from encoder_engine.packing import Sequences
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    LENGTHS,
    dtype_id,
    implementations,
    lengths_id,
    refusal,
    rows,
    sequences,
    skip_if_refused,
)
from tests.ops.compare import compare, compare_outputs
from tests.selection import unless


def eager_pool(hidden: torch.Tensor, mode: str) -> torch.Tensor:
    length = len(hidden)
    if length == 0:
        return hidden.sum(0)
    weights = torch.arange(1, length + 1, device=hidden.device).to(hidden.dtype)[:, None]
    pooled: dict[str, torch.Tensor] = {
        "cls": hidden[0],
        "lasttoken": hidden[-1],
        "max": hidden.amax(0),
        "mean": hidden.mean(0),
        "mean_sqrt_len_tokens": hidden.sum(0) / length**0.5,
        "weightedmean": (hidden * weights).sum(0) / weights.sum(),
    }
    return pooled[mode]


def refused(implementation: str, dtype: torch.dtype, device: str) -> str | None:
    grad = implementation != "native"
    facts = PoolingFacts(device=device, dtype=dtype_id(dtype), requires_grad=grad)
    return refusal("pooling", implementation, facts)


def refused_with_gradient(implementation: str) -> str | None:
    return refusal("pooling", implementation, PoolingFacts(requires_grad=True))


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("pooling"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("mode", ops.POOLING_MODES)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("normalize", [False, True], ids=["plain", "normalized"])
def test_output_and_gradients_are_within_budget(
    lengths: list[int],
    mode: ops.PoolingMode,
    dtype: torch.dtype,
    implementation: str,
    device: str,
    normalize: bool,
) -> None:
    inference = implementation == "native"
    layout = sequences(lengths, device)
    inputs = {"hidden": rows(sum(lengths), 40, seed=0, dtype=dtype, device=device)}

    def run(hidden: torch.Tensor, by: str) -> torch.Tensor:
        return ops.pooling(hidden, layout, mode=mode, normalize=normalize, implementation=by)

    def eager(hidden: torch.Tensor) -> torch.Tensor:
        parts = [eager_pool(part, mode) for part in torch.split(hidden, lengths)]
        pooled = torch.stack(parts) if parts else hidden[:0] * 1
        if not normalize:
            return pooled
        # In float16 the epsilon itself is 0, and an empty sequence would be 0 / 0.
        wide = torch.promote_types(pooled.dtype, torch.float32)
        return F.normalize(pooled.to(wide), dim=-1).to(pooled.dtype)

    judge = compare_outputs if inference else compare
    judge(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=sum(lengths) + 40,
    )


@pytest.mark.parametrize("implementation", [*implementations("pooling"), "reference"])
@pytest.mark.parametrize("mode", ops.POOLING_MODES)
def test_an_empty_sequence_gives_zeros(mode: ops.PoolingMode, implementation: str) -> None:
    skip_if_refused("pooling", implementation, PoolingFacts())
    layout = Sequences.from_lengths([0, 2, 0])
    pooled = ops.pooling(torch.ones(2, 3), layout, mode=mode, implementation=implementation)
    assert not pooled[0].any()
    assert pooled[1].all()
    assert not pooled[2].any()


@unless(refused_with_gradient)
@pytest.mark.parametrize("implementation", [*implementations("pooling"), "reference"])
@pytest.mark.parametrize("mode", ["max", "weightedmean"])
def test_a_text_of_many_chunks_is_pooled_whole(mode: ops.PoolingMode, implementation: str) -> None:
    # Few values, so that each column's highest is reached in every chunk.
    hidden = torch.randint(0, 3, (3000, 4), generator=torch.Generator().manual_seed(0)).float()
    layout = Sequences.from_lengths([1, 2900, 0, 99])
    weights = torch.tensor([[1.0], [2.0], [3.0], [4.0]]).expand(4, 4)
    pooled: list[torch.Tensor] = []
    grads: list[torch.Tensor] = []
    for by, dtype in ((implementation, torch.float32), ("reference", torch.float64)):
        given = hidden.to(dtype).requires_grad_()
        pooled.append(ops.pooling(given, layout, mode=mode, implementation=by))
        grads += torch.autograd.grad(pooled[-1], given, weights.to(dtype))
    torch.testing.assert_close(pooled[0].double(), pooled[1])
    torch.testing.assert_close(grads[0].double(), grads[1])


@pytest.mark.parametrize("implementation", [*implementations("pooling"), "reference"])
def test_the_highest_shares_its_gradient_among_ties_and_a_nan_stays(implementation: str) -> None:
    inference = implementation == "native"
    skip_if_refused("pooling", implementation, PoolingFacts(requires_grad=not inference))
    nan = float("nan")
    rows = [[1.0, 2.0, 0.0], [3.0, 2.0, nan], [3.0, 2.0, 5.0], [0.0, -1.0, 9.0]]
    hidden = torch.tensor(rows, requires_grad=not inference)
    layout = Sequences.from_lengths([3, 1])
    pooled = ops.pooling(hidden, layout, mode="max", implementation=implementation)
    torch.testing.assert_close(
        pooled, torch.tensor([[3.0, 2.0, nan], [0.0, -1.0, 9.0]]), rtol=0, atol=0, equal_nan=True
    )
    if inference:
        return
    (grad,) = torch.autograd.grad(pooled, hidden, torch.full((2, 3), 6.0))
    shared = [[0.0, 2.0, nan], [3.0, 2.0, nan], [3.0, 2.0, nan], [6.0, 6.0, 6.0]]
    torch.testing.assert_close(grad, torch.tensor(shared), rtol=0, atol=0, equal_nan=True)


def test_rows_too_wide_for_a_program_are_refused_with_the_limit() -> None:
    told = dict(ops.explain("pooling", device="cuda", width=WIDEST_TRITON + 1))["triton"]
    if "not installed" in str(told):
        pytest.skip("triton is not installed")
    assert str(WIDEST_TRITON) in str(told)


def test_an_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="weightedmean"):
        ops.pooling(torch.ones(2, 3), Sequences.from_lengths([2]), mode="median")  # type: ignore[arg-type]


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="T = 2"):
        ops.pooling(torch.ones(3, 3), Sequences.from_lengths([2]))


def test_a_layout_on_another_device_is_refused() -> None:
    elsewhere = Sequences.from_lengths([2]).to("meta")
    with pytest.raises(ShapeError, match="cu_seqlens is on meta"):
        ops.pooling(torch.ones(2, 3), elsewhere)
