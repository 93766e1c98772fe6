"""The dense layer within the numeric budget, and independent of how many rows come together."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.autograd import forward_ad

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.linear import LinearFacts
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.ops.cases import DEVICES, DTYPES, dtype_id, implementations, refusal, rows
from tests.ops.compare import compare
from tests.selection import unless


def refused(implementation: str, dtype: torch.dtype, device: str) -> str | None:
    facts = LinearFacts(device=device, dtype=dtype_id(dtype), requires_grad=True)
    return refusal("linear", implementation, facts)


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("linear"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("num_rows", [0, 1, 63, 507])
@pytest.mark.parametrize(("inner", "outer"), [(1, 1), (37, 21), (384, 96)])
def test_output_and_gradients_are_within_budget(
    num_rows: int, inner: int, outer: int, dtype: torch.dtype, implementation: str, device: str
) -> None:
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {
        "x": draw(num_rows, inner, seed=0),
        "weight": draw(outer, inner, seed=1),
        "bias": draw(outer, seed=2),
    }

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, by: str) -> torch.Tensor:
        return ops.linear(x, weight, bias, implementation=by)

    def eager(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight, bias)

    compare(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=inner + outer + num_rows,
    )


@pytest.mark.parametrize("implementation", implementations("linear"))
@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (384, 1152),
        (37, 111),
        (3072, 768),
        pytest.param(1536, 384, marks=pytest.mark.exhaustive),
    ],
)
def test_a_row_is_bit_equal_whatever_comes_with_it(
    implementation: str, inner: int, outer: int
) -> None:
    x = rows(520, inner, seed=0, dtype=torch.float32, device="cpu")
    weight = rows(outer, inner, seed=1, dtype=torch.float32, device="cpu")
    trains = implementation == "native"
    weight.requires_grad_(trains)
    with torch.inference_mode(not trains):
        together = ops.linear(x, weight, implementation=implementation)
        for size in (1, 2, 7, 16, 33, 100, 511):
            parts = [
                ops.linear(part, weight, implementation=implementation)
                for part in torch.split(x, size)
            ]
            assert torch.equal(torch.cat(parts), together), f"{size} rows at a time"


def hold_second_gradients(inputs: dict[str, torch.Tensor], frozen: str | None = None) -> None:
    """Hold what comes of the first gradients, and of theirs, to the budget."""

    def run(by: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        # Not copied: they lie as they lay.
        leaves = {name: tensor.detach().to(dtype) for name, tensor in inputs.items()}
        wanted = {name: t.requires_grad_() for name, t in leaves.items() if name != frozen}
        dense = F.linear if by == "torch" else ops.linear
        output = dense(leaves["x"], leaves["weight"], leaves.get("bias"))
        # A sum's gradient is one number, repeated.
        loss = output.sum() + output.tanh().sum()
        first = torch.autograd.grad(loss, list(wanted.values()), create_graph=True)
        penalty = torch.stack([gradient.square().mean() for gradient in first])
        second = torch.autograd.grad(penalty.sum(), list(wanted.values()))
        return {"penalty": penalty.detach(), **dict(zip(wanted, second, strict=True))}

    found, eager = run("ours", torch.float32), run("torch", torch.float32)
    true = run("torch", torch.float64)
    size = largest(*inputs.values(), *true.values())
    terms = sum(tensor.numel() for tensor in inputs.values())
    for name, expected in true.items():
        assert_within_budget(found[name], eager[name], expected, name, terms=terms, size=size)


@pytest.mark.parametrize("frozen", ["x", "weight", "bias", None])
def test_gradients_are_those_that_are_wanted_and_can_be_differentiated_again(
    frozen: str | None,
) -> None:
    draw = partial(rows, dtype=torch.float32, device="cpu")
    hold_second_gradients(
        {"x": draw(9, 37, seed=0), "weight": draw(21, 37, seed=1), "bias": draw(21, seed=2)}, frozen
    )


@pytest.mark.parametrize("lies", ["overlapping", "expanded", "strided"])
def test_rows_and_weights_may_lie_as_they_like(lies: str) -> None:
    numbers = rows(40, seed=0, dtype=torch.float32, device="cpu")
    laid = {
        "overlapping": numbers.unfold(0, 6, 2),
        "expanded": numbers[:6].expand(9, 6),
        "strided": numbers.view(4, 10)[:, :6],
    }[lies]
    other = rows(5, 6, seed=1, dtype=torch.float32, device="cpu")
    hold_second_gradients({"x": laid, "weight": other})
    hold_second_gradients({"x": other, "weight": laid})


def test_one_row_can_be_changed_in_place() -> None:
    weight = torch.ones(3, 2, requires_grad=True)
    output = ops.linear(torch.ones(1, 2), weight)
    output /= 2.0
    output.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(weight.grad, torch.full((3, 2), 0.5))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_transforms_of_functions_go_through() -> None:
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    assert torch.func.vmap(lambda x: ops.linear(x, weight))(x[None].repeat(2, 1, 1)).shape[0] == 2
    found = torch.func.jvp(lambda w: ops.linear(x, w), (weight,), (weight,))
    torch.testing.assert_close(found[1], F.linear(x, weight))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(weight, weight)  # type: ignore[no-untyped-call]
        output = forward_ad.unpack_dual(ops.linear(x, dual))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(output.tangent, F.linear(x, weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=dtype_id)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("inner", [64, 92])
def test_products_in_16_bits_have_whole_blocks(
    inner: int, autocast: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths, plain = [], F.linear

    def recording(x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        widths.append(x.shape[1])
        return plain(x, *others)  # type: ignore[arg-type]

    x, weight = (
        rows(size, inner, seed=size, dtype=torch.float32 if autocast else dtype, device="cpu")
        for size in (5, 3)
    )
    with torch.autocast("cpu", dtype, enabled=autocast):
        expected = F.linear(x, weight)
        monkeypatch.setattr(F, "linear", recording)
        found = ops.linear(x, weight, implementation="aten")
    # AMX kernels would read the row after a block that is not full; see ops/aten/linear.py.
    assert widths == [-(-inner // 32) * 32]
    truth = plain(x.to(dtype).double(), weight.to(dtype).double())
    size = max(largest(truth), largest(x) * largest(weight))
    assert_within_budget(found, expected, truth, terms=inner, size=size)


def test_features_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"has 767 features, weight .* expects 768"):
        ops.linear(torch.zeros(2, 767), torch.zeros(10, 768))


@pytest.mark.parametrize("shape", [(), (768,), (2, 5, 768)])
def test_an_input_of_other_dimensions_is_refused_by_them(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"input must be \[T, K\] and weight \[N, K\], got"):
        ops.linear(torch.zeros(shape), torch.zeros(10, 768))
