"""GeGLU and SwiGLU within the numeric budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import ops
from encoder_engine.errors import ShapeError
from encoder_engine.ops.registry import CallFacts
from tests.ops.cases import (
    DEVICES,
    DTYPES,
    dtype_id,
    implementations,
    refusal,
    rows,
    too_slow,
)
from tests.ops.compare import compare
from tests.selection import unless

Function = Callable[..., torch.Tensor]
FORMS: dict[str, tuple[Function, Function]] = {
    "geglu": (ops.geglu, F.gelu),
    "geglu tanh": (
        partial(ops.geglu, approximate="tanh"),
        partial(F.gelu, approximate="tanh"),
    ),
    "swiglu": (ops.swiglu, F.silu),
}


def refused(
    form: str, implementation: str, dtype: torch.dtype, device: str, num_rows: int
) -> str | None:
    facts = CallFacts(device=device, dtype=dtype_id(dtype), requires_grad=True)
    return refusal(form.split()[0], implementation, facts) or too_slow(
        implementation, num_rows, device
    )


@unless(refused)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("implementation", implementations("geglu"))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_bias", [False, True], ids=["alone", "bias"])
@pytest.mark.parametrize(
    ("num_rows", "width"), [(0, 96), (1, 96), (63, 96), (507, 96), (5, 1), (9, 37), (3, 4096)]
)
def test_output_and_gradients_are_within_budget(
    num_rows: int,
    width: int,
    with_bias: bool,
    form: str,
    dtype: torch.dtype,
    implementation: str,
    device: str,
) -> None:
    draw = partial(rows, dtype=dtype, device=device)
    inputs = {"x": 3 * draw(num_rows, 2 * width, seed=0)}
    if with_bias:
        inputs["bias"] = draw(2 * width, seed=1)
    operation, activation = FORMS[form]

    def eager(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        x, gate = (x if bias is None else x + bias).chunk(2, dim=-1)
        return activation(x) * gate

    def run(x: torch.Tensor, bias: torch.Tensor | None = None, *, by: str) -> torch.Tensor:
        return operation(x, bias, implementation=by)

    compare(
        partial(run, by=implementation),
        eager,
        partial(run, by="reference"),
        inputs,
        terms=num_rows + 1,
    )


@pytest.mark.parametrize("implementation", [*implementations("geglu"), "reference"])
@pytest.mark.parametrize("form", FORMS)
def test_the_first_half_is_activated_and_the_second_is_the_gate(
    form: str, implementation: str
) -> None:
    operation, _ = FORMS[form]
    far = torch.tensor([[-200.0, 200.0, 2.0, -2.0], [-1e12, 1e12, 0.5, 0.0]])
    output = operation(far, None, implementation=implementation)
    assert output.tolist() == [[0.0, -400.0], [0.0, 0.0]]


@pytest.mark.parametrize(("shape", "bias"), [((6,), 6), ((2, 5), 5), ((2, 6), 3)])
def test_inputs_that_do_not_fit_are_refused(shape: tuple[int, ...], bias: int) -> None:
    for operation, _ in FORMS.values():
        with pytest.raises(ShapeError):
            operation(torch.zeros(shape), torch.zeros(bias))


def test_an_unknown_approximation_is_refused() -> None:
    with pytest.raises(ShapeError, match="sigmoid"):
        ops.geglu(torch.zeros(2, 4), approximate="sigmoid")  # type: ignore[arg-type]
