"""The embedding sum and norm within the numeric budget."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops import gpu
from encoder_engine.ops.embedding import WIDEST_TRITON, EmbeddingFacts
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    dtype_id,
    implementations,
    refusal,
    rows,
    too_slow,
)
from tests.ops.compare import compare, compare_outputs
from tests.selection import unless

EPSILON = 1e-5
WITHOUT = [("positions",), ("norm_bias",), ("norm", "norm_bias")]


def refused(implementation: str, dtype: torch.dtype, device: str, num_tokens: int) -> str | None:
    grad = implementation != "native"
    facts = EmbeddingFacts(device=device, dtype=dtype_id(dtype), requires_grad=grad, width=48)
    return refusal("embedding", implementation, facts) or too_slow(
        implementation, num_tokens, device
    )


def refused_without(implementation: str, without: tuple[str, ...]) -> str | None:
    grad = implementation != "native"
    facts = EmbeddingFacts(requires_grad=grad, width=48, without=without)
    return refusal("embedding", implementation, facts)


def refused_with_dropout(implementation: str) -> str | None:
    return refusal("embedding", implementation, EmbeddingFacts(dropout=True))


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("embedding"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_tokens", [0, 1, 63, 507])
@pytest.mark.parametrize("segments", ["none", "zero", "given"])
def test_output_and_gradients_are_within_budget(
    num_tokens: int, segments: str, dtype: torch.dtype, implementation: str, device: str
) -> None:
    inference = implementation == "native"
    draw = partial(rows, dtype=dtype, device=device)
    sizes = {"token_weight_VE": 50, "position_weight_PE": 40, "segment_weight_SE": 2}
    inputs = {name: draw(size, 48, seed=i) for i, (name, size) in enumerate(sizes.items())}
    inputs |= {"norm_weight_E": draw(48, seed=7), "norm_bias_E": draw(48, seed=8)}
    if segments == "none":
        del inputs["segment_weight_SE"]
    generator = torch.Generator().manual_seed(5)
    ids, places, kinds = (
        torch.randint(0, limit, (num_tokens,), generator=generator).to(device)
        for limit in (50, 40, 2)
    )
    kinds_given = kinds if segments == "given" else None

    def run(by: str, **tables: torch.Tensor) -> torch.Tensor:
        return ops.embedding(
            ids,
            places,
            kinds_given,
            token_weight_VE=tables["token_weight_VE"],
            position_weight_PE=tables["position_weight_PE"],
            segment_weight_SE=tables.get("segment_weight_SE"),
            norm_weight_E=tables["norm_weight_E"],
            norm_bias_E=tables["norm_bias_E"],
            epsilon=EPSILON,
            implementation=by,
        )

    def eager(**tables: torch.Tensor) -> torch.Tensor:
        summed = tables["token_weight_VE"][ids] + tables["position_weight_PE"][places]
        if segments != "none":
            table = tables["segment_weight_SE"]
            summed = summed + (
                table[kinds] if segments == "given" else table[torch.zeros_like(ids)]
            )
        return F.layer_norm(summed, (48,), tables["norm_weight_E"], tables["norm_bias_E"], EPSILON)

    judge = compare_outputs if inference else compare
    judge(
        partial(run, implementation),
        eager,
        partial(run, "reference"),
        inputs,
        terms=48 + num_tokens,
    )


@unless(refused_without)
@pytest.mark.parametrize("implementation", implementations("embedding"))
@pytest.mark.parametrize("without", WITHOUT, ids=str)
def test_what_is_left_out_is_neither_added_nor_normalised(
    without: tuple[str, ...], implementation: str
) -> None:
    inference = implementation == "native"
    ids, places = torch.tensor([3, 0, 3, 8]), torch.tensor([1, 0, 2, 3])
    draw = partial(rows, dtype=torch.float32, device="cpu")
    named = {
        "token_weight_VE": draw(9, 48, seed=0),
        "position_weight_PE": draw(9, 48, seed=1),
        "norm_weight_E": draw(48, seed=2),
        "norm_bias_E": draw(48, seed=3),
    }
    argument = {"positions": "position_weight_PE", "norm": "norm_weight_E"}
    left_out = {argument.get(name, "norm_bias_E") for name in without}
    inputs = {name: tensor for name, tensor in named.items() if name not in left_out}

    def run(by: str, **tables: torch.Tensor) -> torch.Tensor:
        return ops.embedding(
            ids,
            places if "position_weight_PE" in tables else None,
            None,
            token_weight_VE=tables["token_weight_VE"],
            position_weight_PE=tables.get("position_weight_PE"),
            segment_weight_SE=None,
            norm_weight_E=tables.get("norm_weight_E"),
            norm_bias_E=tables.get("norm_bias_E"),
            epsilon=EPSILON,
            implementation=by,
        )

    def eager(**tables: torch.Tensor) -> torch.Tensor:
        summed = tables["token_weight_VE"][ids]
        if "position_weight_PE" in tables:
            summed = summed + tables["position_weight_PE"][places]
        if "norm_weight_E" not in tables:
            return summed
        bias = tables.get("norm_bias_E")
        return F.layer_norm(summed, (48,), tables["norm_weight_E"], bias, EPSILON)

    judge = compare_outputs if inference else compare
    judge(partial(run, implementation), eager, partial(run, "reference"), inputs, terms=52)


def test_half_a_pair_of_arguments_is_refused() -> None:
    table, ids = torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64)
    for position, bias in ((table, None), (None, table[0])):
        with pytest.raises(ShapeError):
            ops.embedding(
                ids,
                None,
                None,
                token_weight_VE=table,
                position_weight_PE=position,
                segment_weight_SE=None,
                norm_weight_E=None,
                norm_bias_E=bias,
                epsilon=EPSILON,
            )


@unless(refused_with_dropout)
@pytest.mark.parametrize("implementation", [*implementations("embedding"), "reference"])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_drops_the_share_asked_for_and_scales_the_rest(
    dropout: float, implementation: str
) -> None:
    torch.manual_seed(0)
    ids = torch.arange(200)
    output = ops.embedding(
        ids,
        ids,
        None,
        token_weight_VE=torch.zeros(200, 64),
        position_weight_PE=torch.zeros(200, 64),
        segment_weight_SE=None,
        norm_weight_E=torch.zeros(64),
        norm_bias_E=torch.ones(64),
        epsilon=EPSILON,
        dropout=dropout,
        implementation=implementation,
    )
    kept = output != 0.0
    torch.testing.assert_close(output, kept / (1.0 - dropout))
    error = (dropout * (1 - dropout) / output.numel()) ** 0.5
    assert abs(kept.float().mean().item() - (1.0 - dropout)) < 5 * error
    assert len({tuple(row) for row in kept.tolist()}) == len(ids), "rows drop alike"


def test_rows_too_wide_for_a_program_are_refused_with_the_limit() -> None:
    if gpu.refuse_triton(EmbeddingFacts(device="cuda")) is not None:
        pytest.skip("triton is not installed")
    ids, wide = torch.zeros(1, dtype=torch.int64), torch.zeros(1, WIDEST_TRITON + 1)
    with pytest.raises(ImplementationError, match=str(WIDEST_TRITON)):
        ops.embedding(
            ids,
            ids,
            None,
            token_weight_VE=wide,
            position_weight_PE=wide,
            segment_weight_SE=None,
            norm_weight_E=wide[0],
            norm_bias_E=wide[0],
            epsilon=EPSILON,
            implementation="triton",
        )


@pytest.mark.parametrize("broken", ["position_weight_PE", "segment_weight_SE", "places"])
def test_inputs_that_do_not_fit_are_refused(broken: str) -> None:
    tables = {
        "token_weight_VE": torch.zeros(9, 4),
        "position_weight_PE": torch.zeros(9, 4),
        "segment_weight_SE": torch.zeros(2, 4),
        "norm_weight_E": torch.ones(4),
        "norm_bias_E": torch.zeros(4),
    }
    if broken in tables:
        tables[broken] = torch.zeros(2, 5)
    ids = torch.zeros(3, dtype=torch.int64)
    places = torch.zeros(2 if broken == "places" else 3, dtype=torch.int64)
    with pytest.raises(ShapeError):
        ops.embedding(
            ids,
            places,
            None,
            token_weight_VE=tables["token_weight_VE"],
            position_weight_PE=tables["position_weight_PE"],
            segment_weight_SE=tables["segment_weight_SE"],
            norm_weight_E=tables["norm_weight_E"],
            norm_bias_E=tables["norm_bias_E"],
            epsilon=EPSILON,
        )


@pytest.mark.parametrize("table", ["token_weight_VE", "segment_weight_SE"])
def test_a_table_without_rows_is_refused_not_read(table: str) -> None:
    tables = {"token_weight_VE": torch.zeros(9, 4), "segment_weight_SE": torch.zeros(2, 4)}
    ids = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ShapeError, match="at least one row"):
        embed_plainly(ids, **tables | {table: torch.zeros(0, 4)})


@pytest.mark.parametrize("ids", [torch.zeros(2, 3, dtype=torch.int64), torch.tensor([1.7])])
def test_ids_that_are_no_row_of_integers_are_refused(ids: torch.Tensor) -> None:
    with pytest.raises(ShapeError, match=r"int32 or torch\.int64 \[T\]"):
        embed_plainly(ids, token_weight_VE=torch.zeros(9, 4), segment_weight_SE=None)


@pytest.mark.parametrize("token", [9, -1, 2**32 + 1, -(2**32) + 1])
def test_an_id_outside_its_table_is_refused_on_a_cpu(token: int) -> None:
    with pytest.raises(IndexError):
        embed_plainly(
            torch.tensor([0, token]), token_weight_VE=torch.ones(9, 4), segment_weight_SE=None
        )


def test_ids_on_another_device_are_refused() -> None:
    with pytest.raises(ShapeError, match="input_ids is on meta"):
        embed_plainly(
            torch.zeros(3, dtype=torch.int64, device="meta"),
            token_weight_VE=torch.zeros(9, 4),
            segment_weight_SE=None,
        )


def embed_plainly(
    ids: torch.Tensor, *, token_weight_VE: torch.Tensor, segment_weight_SE: torch.Tensor | None
) -> None:
    ops.embedding(
        *(ids, None, None),
        token_weight_VE=token_weight_VE,
        position_weight_PE=None,
        segment_weight_SE=segment_weight_SE,
        norm_weight_E=torch.ones(4),
        norm_bias_E=None,
        epsilon=EPSILON,
    )
