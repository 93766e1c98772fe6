"""Attention sees its own sequence, all of it and nothing else, within the numeric budget."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, ShapeError
from encoder_engine.ops.attention import AttentionFacts
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import SelectedRows, Sequences
from tests.ops.attention.cases import PLAIN, TERMS, AttentionCase
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
    too_slow,
)
from tests.ops.compare import compare, compare_outputs
from tests.selection import unless

# Every edge of the terms: nothing, an empty sequence, one token, several blocks, equal lengths.
TERM_LENGTHS = [[], [0, 1], [5, 0, 1, 70, 5]]
CASES = PLAIN | TERMS


def refused(
    name: str, lengths: list[int], dtype: torch.dtype, implementation: str, device: str
) -> str | None:
    case = CASES[name]
    facts = AttentionFacts(
        device=device,
        dtype=dtype_id(dtype),
        requires_grad=True,
        head_dim=case.head_dim,
        grouped_heads=case.group > 1,
        terms=case.terms,
    )
    return refusal("attention", implementation, facts) or too_slow(
        implementation, sum(lengths), device
    )


def hold_to_budget(
    case: AttentionCase, lengths: list[int], dtype: torch.dtype, implementation: str, device: str
) -> None:
    layout = sequences(lengths, device)
    compare(
        case.attend(layout, dtype, implementation),
        partial(case.eager, layout=layout),
        case.attend(layout, torch.float64, "reference"),
        case.inputs(sum(lengths), dtype, device),
        terms=max(case.head_dim, *lengths, 1) * (1 if case.bias_reach is None else sum(lengths)),
    )


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("name", PLAIN)
def test_output_and_gradients_are_within_budget(
    name: str, lengths: list[int], dtype: torch.dtype, implementation: str, device: str
) -> None:
    hold_to_budget(PLAIN[name], lengths, dtype, implementation, device)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("lengths", TERM_LENGTHS, ids=lengths_id)
@pytest.mark.parametrize("name", TERMS)
def test_every_term_is_within_budget(
    name: str, lengths: list[int], dtype: torch.dtype, implementation: str, device: str
) -> None:
    hold_to_budget(TERMS[name], lengths, dtype, implementation, device)


@pytest.mark.parametrize("implementation", implementations("attention_probabilities"))
@pytest.mark.parametrize(
    ("name", "lengths"),
    [("plain", lengths) for lengths in LENGTHS] + [(name, [37, 0, 1, 20]) for name in TERMS],
    ids=lambda given: given if isinstance(given, str) else lengths_id(given),
)
def test_probabilities_are_softmax_inside_and_zero_outside(
    name: str, lengths: list[int], implementation: str
) -> None:
    case = replace(TERMS.get(name, AttentionCase()), nth_is_query=None)
    layout = sequences(lengths, "cpu")
    inputs = case.inputs(sum(lengths), torch.float32, "cpu")
    del inputs["value"]

    def run(dtype: torch.dtype, by: str) -> torch.Tensor:
        query, key, *bias = (tensor.to(dtype) for tensor in inputs.values())
        arguments = case.arguments(layout, dtype) | {"implementation": by}
        if bias:
            arguments["relative_bias_HR"] = bias[0]
        return ops.attention_probabilities(query, key, layout, **arguments)

    ours, truth = run(torch.float32, implementation), run(torch.float64, "reference")
    query, key, *bias = inputs.values()
    eager = torch.zeros_like(ours)
    for row, (start, stop) in enumerate(zip(layout.offsets[:-1], layout.offsets[1:], strict=True)):
        weights = case.probabilities(query[start:stop], key[start:stop], int(start), *bias)
        eager[row, :, : stop - start, : stop - start] = weights
    assert_within_budget(ours, eager, truth, terms=max(16, *lengths, 1))
    inside = truth.sum(-1)
    for row, length in enumerate(lengths):
        assert torch.allclose(inside[row, :, :length], torch.ones((), dtype=torch.float64))
        assert not truth[row, :, length:].any()
        assert not truth[row, :, :, length:].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", *TERMS])
def test_a_trace_sees_one_operator_with_the_same_results(name: str) -> None:
    case = TERMS.get(name, AttentionCase())
    layout = sequences([5, 0, 17, 5], "cpu")
    attend = case.attend(layout, torch.float32, "aten")
    torch.compiler.reset()
    traced = torch.compile(attend, backend="aot_eager", fullgraph=True)
    inputs = case.inputs(27, torch.float32, "cpu")
    with torch.inference_mode():
        expected = attend(**inputs)
        assert torch.equal(traced(**inputs), expected)
    attend(**{name: tensor.clone().requires_grad_() for name, tensor in inputs.items()})
    compare(
        traced,
        attend,
        partial(case.eager, layout=layout),
        inputs,
        terms=max(case.head_dim, 27 * 17),
    )


def test_a_trace_drops_weights_and_differentiates_what_it_dropped() -> None:
    layout = sequences([64] * 8 + [40], "cpu")
    query = torch.zeros(552, 4, 32)
    value = torch.ones(552, 4, 32, requires_grad=True)

    def attend(value: torch.Tensor) -> torch.Tensor:
        return ops.attention(query, query, value, layout, dropout=0.25, implementation="aten")

    attend(value)
    torch.manual_seed(0)
    output = torch.compile(attend, backend="aot_eager", fullgraph=True)(value)
    sums = output[:512, :, 0].detach()
    assert abs(float(sums.mean()) - 1.0) < 5 * 0.0722 / sums.numel() ** 0.5
    assert float(sums.std()) > 0.05
    # The output is linear in value: <W value, g> = <value, W' g> for the same dropped W alone.
    noise = rows(552, 4, 32, seed=0, dtype=torch.float32, device="cpu")
    (grad,) = torch.autograd.grad(output, value, noise)
    torch.testing.assert_close(grad.sum(), (output * noise).sum(), rtol=1e-4, atol=1e-2)


def refused_in_bfloat16(implementation: str) -> str | None:
    return refusal("attention", implementation, AttentionFacts(dtype="bfloat16"))


@unless(refused_in_bfloat16)
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("implementation", implementations("attention"))
def test_autocast_casts_as_for_a_matrix_product(implementation: str, traced: bool) -> None:
    case = AttentionCase(window=4)
    attend = case.attend(sequences([5, 17], "cpu"), torch.float32, implementation)
    inputs = case.inputs(22, torch.float32, "cpu")
    expected = attend(**{name: tensor.bfloat16() for name, tensor in inputs.items()})
    torch.compiler.reset()
    run = torch.compile(attend, backend="aot_eager", fullgraph=True) if traced else attend
    with torch.autocast("cpu", torch.bfloat16):
        found = run(**inputs | {"value": inputs["value"].bfloat16()})
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)


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


def slow_to_interpret(implementation: str, num_heads: int, head_dim: int) -> str | None:
    if implementation == "triton" and (num_heads > 1 or head_dim in (8, 10, 14)):
        return "Triton's interpreter is slow; fewer shapes have the same edges"
    return None


@unless(slow_to_interpret)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("num_heads", [1, 3, 12])
@pytest.mark.parametrize("head_dim", [2, 8, 10, 14, 26, 32, 50, 64])
@pytest.mark.parametrize("window", [None, 9])
def test_results_are_bit_equal_alone_and_in_a_batch(
    implementation: str, num_heads: int, head_dim: int, window: int | None
) -> None:
    lengths = [1, 9, 40, 7, 15, 130, 40, 2, 33, 9]
    if implementation == "triton":
        lengths = [1, 9, 40, 2]
    layout = sequences(lengths, "cpu")
    attend = partial(ops.attention, window=window, implementation=implementation)
    packed = [
        rows(sum(lengths), num_heads, head_dim, seed=s, dtype=torch.float32, device="cpu")
        for s in range(3)
    ]
    query, key, value = packed
    with torch.inference_mode():
        together = attend(query, key, value, layout)
        for row, length in enumerate(lengths):
            start = int(layout.offsets[row])
            query, key, value = (x[start : start + length].clone() for x in packed)
            alone = attend(query, key, value, sequences([length], "cpu"))
            assert torch.equal(alone, together[start : start + length]), f"row {row}"


def refused_with(implementation: str, term: str, has_gradients: bool) -> str | None:
    facts = AttentionFacts(requires_grad=has_gradients, terms=(term,))
    return refusal("attention", implementation, facts)


def refused_a_bias(implementation: str, has_gradients: bool) -> str | None:
    return refused_with(implementation, "relative_bias", has_gradients)


@unless(refused_a_bias)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("has_gradients", [True, False], ids=["gradients", "inference"])
def test_a_bias_of_minus_infinity_hides_whole_blocks_of_keys(
    implementation: str, has_gradients: bool
) -> None:
    case, layout = AttentionCase(bias_reach=20), sequences([100, 7], "cpu")
    attend = case.attend(layout, torch.float32, implementation)
    # From row 43 on, the first 32 keys are more than 11 before.
    hidden = torch.where(torch.arange(-20, 21) < -11, -torch.inf, 0.0).expand(2, -1)

    def run(bias: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return attend(**others, bias=bias + hidden)

    def eager(bias: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return case.eager(**others, bias=bias + hidden, layout=layout)

    check = compare if has_gradients else compare_outputs
    check(run, eager, eager, case.inputs(107, torch.float32, "cpu"), terms=100 * 107)


def refused_a_window(implementation: str, has_gradients: bool) -> str | None:
    return refused_with(implementation, "window", has_gradients)


@unless(refused_a_window)
@pytest.mark.parametrize("implementation", implementations("attention"))
@pytest.mark.parametrize("has_gradients", [True, False], ids=["gradients", "inference"])
@pytest.mark.parametrize("window", [2**31 - 1, 2**31, 2**63 - 1])
def test_a_window_may_be_as_wide_as_integers_are(
    implementation: str, has_gradients: bool, window: int
) -> None:
    case, layout = AttentionCase(window=window), sequences([40, 7], "cpu")
    eager = partial(case.eager, layout=layout)
    check = compare if has_gradients else compare_outputs
    attend = case.attend(layout, torch.float32, implementation)
    check(attend, eager, eager, case.inputs(47, torch.float32, "cpu"), terms=40)


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


SLOPES = torch.ones(2)
CLS = SelectedRows(torch.tensor([0, 2]), Sequences.from_lengths([2, 3]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_TKD": torch.zeros(5, 2, 9)}, r"key \[T, K, D\]"),
        ({"key_TKD": torch.zeros(4, 2, 8)}, "key has 4 rows, the sequences hold 5"),
        ({"key_TKD": torch.zeros(5, 2, 8, dtype=torch.float64)}, "key is torch.float64"),
        ({"value_TKD": torch.zeros(4, 2, 8)}, "value is"),
        ({"query_THD": torch.zeros(5, 16), "key_TKD": torch.zeros(5, 16)}, "T, H, D"),
        ({"query_THD": torch.zeros(5, 3, 8)}, "must divide"),
        ({"sequences": Sequences.from_lengths([2, 2])}, "query has 5 rows, the sequences hold 4"),
        ({"query_rows": CLS}, "query has 5 rows, query_rows hold 2"),
        ({"query_rows": replace(CLS, sequences=Sequences.from_lengths([1, 4]))}, "other sequences"),
        ({"global_rows": CLS}, "need a window"),
        ({"global_rows": CLS, "window": 1, "causal": True}, "which causal forbids"),
        ({"relative_bias_HR": torch.zeros(2, 4)}, "2 r"),
        ({"relative_bias_HR": torch.zeros(3, 5)}, r"\[2, 2 r"),
        ({"relative_bias_HR": torch.zeros(2, 5).half()}, "or torch.float32"),
        ({"relative_bias_HR": torch.zeros(2, 5, device="meta")}, "on meta"),
        ({"window": -1}, "window must be a number of tokens"),
        ({"window": 1.5}, "window must be a number of tokens"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"alibi_slopes_H": torch.ones(3)}, r"float32 \[2\]"),
        ({"alibi_slopes_H": SLOPES.double()}, "got torch.float64"),
        ({"alibi_slopes_H": SLOPES.to("meta")}, "on meta"),
        ({"alibi_slopes_H": SLOPES.clone().requires_grad_()}, "constants"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = dict.fromkeys(
        ("query_THD", "key_TKD", "value_TKD"), torch.zeros(5, 2, 8)
    )
    good["sequences"] = Sequences.from_lengths([2, 3])
    with pytest.raises(ShapeError, match=message):
        ops.attention(**(good | change))  # type: ignore[arg-type]


def test_an_explicit_request_never_falls_back() -> None:
    x = torch.zeros(2, 1, 8)
    with pytest.raises(ImplementationError, match="no implementation 'fastest'"):
        ops.attention(x, x, x, Sequences.from_lengths([2]), implementation="fastest")


def refused_with_bias(implementation: str) -> str | None:
    return refusal("attention", implementation, AttentionFacts(terms=("relative_bias",)))


@unless(refused_with_bias)
@pytest.mark.parametrize("implementation", implementations("attention"))
def test_first_rows_alone_are_what_they_are_among_all(implementation: str) -> None:
    case = AttentionCase(bias_reach=3)
    layout = sequences([7, 0, 1, 40], "cpu")
    inputs = case.inputs(48, torch.float32, "cpu")
    everything = case.attend(layout, torch.float32, implementation)(**inputs)
    first = SelectedRows(torch.tensor([0, 7, 8]), layout)
    alone = ops.attention(
        inputs["query"][first.rows],
        inputs["key"],
        inputs["value"],
        layout,
        relative_bias_HR=inputs["bias"],
        query_rows=first,
        implementation=implementation,
    )
    torch.testing.assert_close(alone, everything[first.rows])


def refused_with_global_rows(implementation: str) -> str | None:
    return refusal("attention", implementation, AttentionFacts(terms=("global_rows",)))


@unless(refused_with_global_rows)
@pytest.mark.parametrize("implementation", implementations("attention"))
def test_global_rows_may_have_projections_of_their_own(implementation: str) -> None:
    layout = sequences([9, 30], "cpu")
    local = AttentionCase(window=4).inputs(39, torch.float32, "cpu")
    own = {name: tensor.flip(0) for name, tensor in local.items()}
    first = SelectedRows(torch.tensor([0, 9]), layout)

    def attend(by: str) -> torch.Tensor:
        run = partial(ops.attention, sequences=layout, implementation=by)
        output = run(local["query"], local["key"], local["value"], window=4, global_rows=first)
        query = own["query"][first.rows]
        full = run(query, own["key"], own["value"], query_rows=first)
        return output.index_copy(0, first.rows, full)

    ours = attend(implementation)
    torch.testing.assert_close(ours, attend("reference"))
    for start, stop in ((0, 9), (9, 39)):
        score = own["query"][start] @ own["key"][start:stop].permute(1, 2, 0) * 0.25
        weights = torch.softmax(score.diagonal(dim1=0, dim2=1).T, dim=-1)
        expected = torch.einsum("hl,lhd->hd", weights, own["value"][start:stop])
        torch.testing.assert_close(ours[start], expected)


def test_a_layout_on_another_device_is_refused() -> None:
    rows_THD = torch.ones(2, 1, 16)
    with pytest.raises(ShapeError, match="cu_seqlens is on meta"):
        ops.attention(rows_THD, rows_THD, rows_THD, sequences([2], "cpu").to("meta"))
