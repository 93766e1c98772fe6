"""Rotary position embeddings, within the numeric budget and as their definition has them."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import SequenceLengthError, ShapeError
from encoder_engine.ops.registry import CallFacts
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
)
from tests.ops.compare import compare, compare_outputs
from tests.selection import unless

BASE = 160_000.0


def eager(
    positions: torch.Tensor, table: torch.Tensor, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor:
    turns = table.to(torch.promote_types(query.dtype, torch.float32))[positions.long()]
    cosine, sine = (x[:, None].repeat(1, 1, 2) for x in turns.chunk(2, dim=1))

    def turn(x: torch.Tensor) -> torch.Tensor:
        wide = x.to(cosine.dtype)
        first, second = wide.chunk(2, dim=2)
        return (wide * cosine + torch.cat((-second, first), dim=2) * sine).to(x.dtype)

    return torch.cat((turn(query), turn(key)), dim=1)


def refused(
    implementation: str,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    inference: bool = False,
) -> str | None:
    facts = CallFacts(device=device, dtype=dtype_id(dtype), requires_grad=not inference)
    return refusal("rotary", implementation, facts)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("rotary"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("head_dim", [2, 24, 64])
@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("inference", [False, True], ids=["with gradients", "inference"])
def test_output_and_gradients_are_within_budget(
    inference: bool,
    lengths: list[int],
    head_dim: int,
    dtype: torch.dtype,
    implementation: str,
    device: str,
) -> None:
    positions = sequences(lengths, device).positions
    draw = partial(rows, sum(lengths), dtype=dtype, device=device)
    inputs = {"query": draw(3, head_dim, seed=0), "key": draw(2, head_dim, seed=1)}
    table = ops.rotary_table(512, head_dim, base=BASE, device=device, dtype=torch.float64)

    def run(by: str, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        kind = torch.promote_types(query.dtype, torch.float32)
        turned = ops.rotary(query, key, table.to(kind), positions, implementation=by)
        return torch.cat(turned, dim=1)

    judge = compare_outputs if inference else compare
    judge(
        partial(run, implementation),
        partial(eager, positions, table),
        partial(run, "reference"),
        inputs,
        terms=2,
    )


@pytest.mark.parametrize("implementation", [*implementations("rotary"), "reference"])
def test_scores_depend_on_the_distance_alone_and_lengths_are_kept(implementation: str) -> None:
    table = ops.rotary_table(300, 16, base=BASE)
    query, key = (rows(1, 1, 16, seed=s, dtype=torch.float32, device="cpu") for s in (0, 1))
    query, key = query.expand(4, 1, 16), key.expand(4, 1, 16)

    def turned(positions: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.tensor(positions, dtype=torch.int32)
        return ops.rotary(query, key, table, places, implementation=implementation)

    near, _ = turned([0, 7, 100, 295])
    _, far = turned([4, 11, 104, 299])
    scores = (near * far).sum(dim=(1, 2))
    torch.testing.assert_close(scores, scores[:1].expand(4))
    torch.testing.assert_close(near.norm(dim=2), query.norm(dim=2))
    assert torch.equal(near[0], query[0])


def test_a_table_is_what_transformers_computes_for_modernbert() -> None:
    modernbert = pytest.importorskip("transformers.models.modernbert.modeling_modernbert")
    query, key = (rows(9, 2, 8, seed=s, dtype=torch.float32, device="cpu") for s in (0, 1))
    positions = torch.arange(9)
    frequencies = 1.0 / BASE ** (torch.arange(0, 8, 2).float() / 8)
    angles = torch.cat((torch.outer(positions.float(), frequencies),) * 2, dim=1)[None]
    expected = modernbert.apply_rotary_pos_emb(
        query.transpose(0, 1)[None], key.transpose(0, 1)[None], angles.cos(), angles.sin()
    )
    found = ops.rotary(query, key, ops.rotary_table(9, 8, base=BASE), positions)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs[0].transpose(0, 1))


def refused_in_a_trace(implementation: str) -> str | None:
    return refusal("rotary", implementation, CallFacts(requires_grad=True, transformed=True))


@unless(refused_in_a_trace)
@pytest.mark.parametrize("implementation", implementations("rotary"))
def test_a_view_of_a_joint_projection_is_taken_as_it_lies_in_one_graph(implementation: str) -> None:
    table, positions = ops.rotary_table(20, 16, base=BASE), torch.arange(11)

    def block(joint: torch.Tensor) -> torch.Tensor:
        query, key, _ = joint.view(11, 3, 2, 16).unbind(dim=1)
        return torch.cat(ops.rotary(query, key, table, positions, implementation=implementation))

    joint = rows(11, 96, seed=0, dtype=torch.float32, device="cpu").requires_grad_()
    expected = block(joint)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)(joint)
    assert torch.equal(expected, compiled)
    one, other = (torch.autograd.grad(y.square().sum(), joint)[0] for y in (expected, compiled))
    assert torch.equal(one, other)
    torch.testing.assert_close(one[:, :64], 2 * joint.detach()[:, :64])
    assert not one[:, 64:].any()


X, TABLE, FOUR = torch.zeros(4, 2, 8), torch.zeros(16, 8), torch.arange(4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X[0], X, TABLE, FOUR), r"query must be \[T, H, D\]"),
        ((X, X[:3], TABLE, FOUR), r"key \[T, K, D\]"),
        ((X, X.half(), TABLE, FOUR), "key is torch.float16"),
        ((X, X, TABLE[:, :6], FOUR), r"the table is \[16, 6\]"),
        ((X[..., :7], X[..., :7], TABLE[:, :7], FOUR), "D even"),
        ((X, X, TABLE.half(), FOUR), "must be torch.float32"),
        ((X, X, TABLE, FOUR[:3]), "position_ids is .3. on cpu, query has 4 rows"),
        ((X, X, TABLE, FOUR.float()), "int32 or int64"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    given: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        ops.rotary(*given)


def test_positions_outside_of_the_table_are_named() -> None:
    for bad in (16, -1):
        with pytest.raises(SequenceLengthError, match=rf"\[2\] is {bad}, .* 0 to 15") as raised:
            ops.rotary(X, X, TABLE, torch.tensor([0, 15, bad, 0]))
        assert raised.value.row == 2


@pytest.mark.parametrize(
    ("num_positions", "head_dim", "base"), [(0, 8, 1e4), (8, 7, 1e4), (8, 0, 1e4), (8, 8, 0.0)]
)
def test_tables_that_cannot_be_are_refused(num_positions: int, head_dim: int, base: float) -> None:
    with pytest.raises(ShapeError):
        ops.rotary_table(num_positions, head_dim, base=base)


def test_a_divisor_brings_positions_closer() -> None:
    halved = ops.rotary_table(21, 16, base=BASE, divisor=2.0, dtype=torch.float64)
    plain = ops.rotary_table(11, 16, base=BASE, dtype=torch.float64)
    assert torch.equal(halved[::2], plain)
    with pytest.raises(ShapeError, match="divisor"):
        ops.rotary_table(9, 8, base=BASE, divisor=0.0)
