"""Attention sees its own sequence, all of it and nothing else, within the numeric budget."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.packing import Sequences
from tests.budget import assert_within_budget
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    LENGTHS,
    dtype_id,
    implementations,
    lengths_id,
    rows,
    sequences,
    skip_if_refused,
    skip_if_too_slow,
)
from tests.ops.compare import compare


def padded_eager(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Sequences,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention one sequence at a time by plain matmul and softmax, in the input's dtype."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    parts = [value[:0] + query[:0] + key[:0]]
    for start, stop in zip(layout.offsets[:-1], layout.offsets[1:], strict=True):
        q, k, v = (x[start:stop].transpose(0, 1) for x in (query, key, value))
        parts.append((torch.softmax(q @ k.transpose(1, 2) * scale, -1) @ v).transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
@pytest.mark.parametrize(("num_heads", "head_dim"), [(1, 64), (3, 32), (5, 24)])
def test_output_and_gradients_are_within_budget(
    lengths: list[int],
    dtype: torch.dtype,
    implementation: str,
    device: str,
    num_heads: int,
    head_dim: int,
) -> None:
    facts = AttentionFacts(
        device=device, dtype=dtype_id(dtype), requires_grad=True, head_dim=head_dim
    )
    skip_if_refused("attention", implementation, facts)
    skip_if_too_slow(implementation, sum(lengths), device)
    layout = sequences(lengths, device)
    shape = (sum(lengths), num_heads, head_dim)
    inputs = {
        name: rows(*shape, seed=seed, dtype=dtype, device=device)
        for seed, name in enumerate(("query", "key", "value"))
    }

    def run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, by: str) -> torch.Tensor:
        return ops.attention(query, key, value, layout, implementation=by)

    compare(
        partial(run, by=implementation),
        partial(padded_eager, layout=layout),
        partial(run, by="reference"),
        inputs,
        terms=max(head_dim, *lengths, 1),
    )


@pytest.mark.parametrize("implementation", implementations("attention_probabilities"))
@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
def test_probabilities_are_softmax_inside_and_zero_outside(
    lengths: list[int], implementation: str
) -> None:
    layout = sequences(lengths, "cpu")
    query, key = (
        rows(sum(lengths), 2, 16, seed=s, dtype=torch.float32, device="cpu") for s in (0, 1)
    )
    ours = ops.attention_probabilities(query, key, layout, implementation=implementation)
    truth = ops.attention_probabilities(
        query.double(), key.double(), layout, implementation="reference"
    )
    eager = torch.zeros_like(ours)
    for row, (start, stop) in enumerate(zip(layout.offsets[:-1], layout.offsets[1:], strict=True)):
        q, k = (x[start:stop].transpose(0, 1) for x in (query, key))
        n = int(stop - start)
        eager[row, :, :n, :n] = torch.softmax(q @ k.transpose(1, 2) * 0.25, -1)
    assert_within_budget(ours, eager, truth, terms=max(16, *lengths, 1))
    inside = F.pad(truth.sum(-1), (0, 0))
    for row, length in enumerate(lengths):
        assert torch.allclose(inside[row, :, :length], torch.ones(2, length, dtype=torch.float64))
        assert not truth[row, :, length:].any()
        assert not truth[row, :, :, length:].any()


@pytest.mark.filterwarnings("ignore:.*invalid value.*")
@pytest.mark.parametrize("implementation", implementations("attention"))
def test_a_sequence_never_sees_its_neighbours(implementation: str) -> None:
    layout = sequences([7, 9, 7], "cpu")
    query, key, value = (
        rows(23, 2, 8, seed=s, dtype=torch.float32, device="cpu") for s in range(3)
    )
    alone = ops.attention(query, key, value, layout, implementation=implementation)
    key[16:], value[16:] = torch.inf, torch.nan
    beside = ops.attention(query, key, value, layout, implementation=implementation)
    assert torch.equal(alone[:16], beside[:16])


@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("num_heads", [1, 3, 12])
@pytest.mark.parametrize("head_dim", [2, 8, 10, 14, 26, 32, 50, 64])
def test_results_are_bit_equal_alone_and_in_a_batch(
    implementation: str, num_heads: int, head_dim: int
) -> None:
    lengths = [1, 9, 40, 7, 15, 130, 40, 2, 33, 9]
    if implementation == "triton":
        if num_heads > 1 or head_dim in (8, 10, 14):
            pytest.skip("Triton's interpreter is slow; fewer shapes have the same edges")
        lengths = [1, 9, 40, 2]
    layout = sequences(lengths, "cpu")
    packed = [
        rows(sum(lengths), num_heads, head_dim, seed=s, dtype=torch.float32, device="cpu")
        for s in range(3)
    ]
    query, key, value = packed
    with torch.inference_mode():
        together = ops.attention(query, key, value, layout, implementation=implementation)
        for row, length in enumerate(lengths):
            start = int(layout.offsets[row])
            query, key, value = (x[start : start + length].clone() for x in packed)
            alone = ops.attention(
                query, key, value, sequences([length], "cpu"), implementation=implementation
            )
            assert torch.equal(alone, together[start : start + length]), f"row {row}"


def test_dropout_keeps_the_mean_and_drops_the_share_asked_for() -> None:
    layout = sequences([64] * 8, "cpu")
    query = torch.zeros(512, 4, 32)
    value = torch.ones(512, 4, 32)
    torch.manual_seed(0)
    output = ops.attention(query, query, value, layout, dropout=0.25)
    # Each row is a mean of 64 kept-or-dropped ones: binomial, standard deviation 0.072.
    sums = output[..., 0]
    error_of_mean = 0.0722 / sums.numel() ** 0.5
    assert abs(float(sums.mean()) - 1.0) < 5 * error_of_mean
    assert float(sums.std()) > 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_THD": torch.zeros(5, 2, 9)}, "one dtype"),
        ({"key_THD": torch.zeros(5, 2, 8, dtype=torch.float64)}, "one dtype"),
        ({"value_THD": torch.zeros(4, 2, 8)}, "value is"),
        ({"query_THD": torch.zeros(5, 16), "key_THD": torch.zeros(5, 16)}, "T, H, D"),
        ({"sequences": Sequences.from_lengths([2, 2])}, "4 tokens"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = dict.fromkeys(
        ("query_THD", "key_THD", "value_THD"), torch.zeros(5, 2, 8)
    )
    good["sequences"] = Sequences.from_lengths([2, 3])
    with pytest.raises(ShapeError, match=message):
        ops.attention(**(good | change))  # type: ignore[arg-type]


def test_an_explicit_request_never_falls_back() -> None:
    x = torch.zeros(2, 1, 8)
    with pytest.raises(ImplementationError, match="no implementation 'fastest'"):
        ops.attention(x, x, x, Sequences.from_lengths([2]), implementation="fastest")
