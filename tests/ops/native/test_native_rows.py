"""The C++ norms and activations, which are for inference alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from encoder_engine import ops
from encoder_engine.ops.embedding import EmbeddingFacts
from encoder_engine.ops.layer_norm import LayerNormFacts
from encoder_engine.ops.registry import CallFacts
from encoder_engine.ops.testing import assert_within_budget
from tests.ops.cases import dtype_id, rows, skip_if_refused
from tests.ops.compare import compare_outputs
from tests.ops.test_gated_activation import FORMS
from tests.ops.test_layer_norm import NORMS, eager, normalise

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [(0, 24), (1, 1), (1, 16), (63, 1), (63, 37), (63, 1000), (507, 24), (507, 384), (3, 4096)]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize(("num_rows", "width"), SHAPES)
@pytest.mark.parametrize("with_residual", [False, True], ids=["alone", "residual"])
def test_native_norms_and_sums_are_within_budget(
    num_rows: int, width: int, dtype: torch.dtype, norm: str, with_residual: bool
) -> None:
    skip_if_refused(norm, "native", LayerNormFacts(dtype=dtype_id(dtype), width=width))
    draw = partial(rows, dtype=dtype, device="cpu")
    inputs = {"x": 3 * draw(num_rows, width, seed=0) + 1, "weight": draw(width, seed=1)}
    if norm == "layer_norm":
        inputs["bias"] = draw(width, seed=2)
    if with_residual:
        inputs["residual"] = draw(num_rows, width, seed=3)
    compare_outputs(
        partial(normalise, norm, by="native"),
        partial(eager, norm),
        partial(normalise, norm, by="reference"),
        inputs,
        terms=width,
    )


def gelu_case(
    approximate: ops.Approximation,
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return the operation and plain PyTorch's activation."""
    return partial(ops.bias_gelu, approximate=approximate), partial(F.gelu, approximate=approximate)


ACTIVATIONS = {**FORMS, "bias_gelu": gelu_case("none"), "bias_gelu tanh": gelu_case("tanh")}


@pytest.mark.parametrize("form", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize(("num_rows", "width"), SHAPES)
@pytest.mark.parametrize("with_bias", [False, True], ids=["alone", "bias"])
@pytest.mark.parametrize("size", [0.1, 3.0])
def test_native_activations_are_within_budget(
    num_rows: int, width: int, dtype: torch.dtype, form: str, with_bias: bool, size: float
) -> None:
    name = form.split()[0]
    skip_if_refused(name, "native", CallFacts(dtype=dtype_id(dtype)))
    gated = name != "bias_gelu"
    width = 2 * width if gated else width
    inputs = {"x": size * rows(num_rows, width, seed=0, dtype=dtype, device="cpu")}
    if with_bias:
        inputs["bias"] = size * rows(width, seed=1, dtype=dtype, device="cpu")
    operation, activation = ACTIVATIONS[form]

    def by_torch(x: Tensor, bias: Tensor | None = None) -> Tensor:
        x = x if bias is None else x + bias
        if not gated:
            return activation(x)
        x, gate = x.chunk(2, dim=-1)
        return activation(x) * gate

    def run(x: Tensor, bias: Tensor | None = None, *, by: str) -> Tensor:
        return operation(x, bias, implementation=by)

    compare_outputs(
        partial(run, by="native"), by_torch, partial(run, by="reference"), inputs, terms=1
    )


@pytest.mark.parametrize("form", ACTIVATIONS)
def test_native_activations_keep_what_is_no_number(form: str) -> None:
    skip_if_refused(form.split()[0], "native", CallFacts())
    x = torch.tensor([[torch.nan, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    output = ACTIVATIONS[form][0](x, None, implementation="native")
    assert output[0, 0].isnan()
    assert output.isnan().sum() == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
def test_native_rows_have_the_same_bits_on_any_number_of_threads(dtype: torch.dtype) -> None:
    skip_if_refused("layer_norm", "native", LayerNormFacts(dtype=dtype_id(dtype)))
    x = rows(700, 390, seed=0, dtype=dtype, device="cpu")
    weight = rows(390, seed=1, dtype=dtype, device="cpu")
    before = torch.get_num_threads()
    found = []
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            normal = normalise("layer_norm", x, weight, by="native")[0]
            found.append((normal, ops.geglu(x, implementation="native")))
    finally:
        torch.set_num_threads(before)
    normal, gated = found[0]
    for other in found[1:]:
        assert torch.equal(normal, other[0])
        assert torch.equal(gated, other[1])
    alone = normalise("layer_norm", x[137:138].clone(), weight, by="native")[0]
    assert torch.equal(alone, normal[137:138])


def test_a_native_lookup_refuses_an_id_that_no_row_has() -> None:
    skip_if_refused("embedding", "native", EmbeddingFacts())
    table = torch.ones(5, 8)
    for ids in ([0, 5], [-1, 0]):
        with pytest.raises(IndexError, match="outside of its embedding table"):
            ops.embedding(
                torch.tensor(ids),
                torch.zeros(2, dtype=torch.int32),
                None,
                token_weight_VE=table,
                position_weight_PE=table,
                segment_weight_SE=None,
                norm_weight_E=table[0],
                norm_bias_E=table[0],
                epsilon=1e-5,
                implementation="native",
            )


def test_native_norms_and_activations_are_operators_that_trace() -> None:
    skip_if_refused("layer_norm", "native", LayerNormFacts())
    from encoder_engine.ops.native import activation, embedding, layer_norm, pooling

    x, weight = (rows(n, 8, seed=n, dtype=torch.float32, device="cpu") for n in (20, 1))
    weight = weight[0]
    torch.library.opcheck(layer_norm.operator, (x, weight, None, x, 1e-6, True, True))
    torch.library.opcheck(layer_norm.operator, (x, weight, None, None, 1e-6, False, False))
    torch.library.opcheck(activation.operator, (x, weight, "silu", True))
    ids = torch.arange(7)
    tables = (x, x, None, weight, weight)
    torch.library.opcheck(embedding.operator, (ids, ids, None, *tables, 1e-6))
    ends = torch.tensor([0, 3, 3, 20], dtype=torch.int32)
    torch.library.opcheck(pooling.operator, (x, ends, "mean", True))


TORCH_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


@pytest.mark.parametrize("function", TORCH_ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_id)
@pytest.mark.parametrize(("num_rows", "width"), SHAPES)
@pytest.mark.parametrize("size", [1e-3, 0.3, 3.0, 40.0])
def test_activations_of_plans_are_within_budget(
    num_rows: int, width: int, dtype: torch.dtype, function: str, size: float
) -> None:
    skip_if_refused("bias_gelu", "native", CallFacts(dtype=dtype_id(dtype)))
    x = size * rows(num_rows, width, seed=0, dtype=dtype, device="cpu")
    by_torch = TORCH_ACTIVATIONS[function]
    found = activate_natively(x, function)
    assert_within_budget(found, by_torch(x), by_torch(x.double()), terms=1)


@pytest.mark.parametrize("function", TORCH_ACTIVATIONS)
def test_activations_of_plans_keep_what_is_no_number(function: str) -> None:
    skip_if_refused("bias_gelu", "native", CallFacts())
    x = torch.tensor([[torch.nan, torch.inf, -torch.inf, -0.0, 0.0, 1e-30, -80.0, 80.0]])
    found = activate_natively(x, function)
    torch.testing.assert_close(found, TORCH_ACTIVATIONS[function](x), equal_nan=True)


def activate_natively(x: Tensor, function: str) -> Tensor:
    from encoder_engine import _native

    output = torch.full_like(x, torch.nan)
    _native.activate_rows(
        *(x.dtype == torch.bfloat16, function, False, x.data_ptr(), 0, output.data_ptr()),
        *(*x.shape, 2),
    )
    return output
