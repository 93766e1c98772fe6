"""The short way to a kernel is the same operator: gradients, tracing, modes and their errors."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_engine import ops
from encoder_engine.errors import ImplementationError
from encoder_engine.ops import light

if TYPE_CHECKING:
    from collections.abc import Callable

Tensor = torch.Tensor


@pytest.fixture(scope="module")
def cubed() -> Callable[..., Tensor]:
    """Define an operator with a list and a number, as attention's are."""

    def run(x: Tensor, layout: list[Tensor], factor: float) -> Tensor:
        return factor * x**3 + 0.0 * sum(part.sum() for part in layout)

    operator = torch.library.custom_op(
        "encoder_engine::test_cubed",
        run,
        mutates_args=(),
        schema="(Tensor x, Tensor[] layout, float factor) -> Tensor",
    )
    operator.register_fake(lambda x, *_: torch.empty_like(x))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.factor = inputs[2]

    def differentiate(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        return gradient * 3 * ctx.factor * x**2, [None], None

    operator.register_autograd(differentiate, setup_context=keep)
    light.lighten()
    return operator


@pytest.mark.usefixtures("cubed")
def test_threads_register_an_operator_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []

    def register(name: str, _definition: object) -> None:
        time.sleep(0.001)
        registered.append(name)

    monkeypatch.setattr(light, "_done", set[str]())
    monkeypatch.setattr(light, "_register", register)
    with ThreadPoolExecutor(4) as pool:
        for found in [pool.submit(light.lighten) for _ in range(4)]:
            found.result()
    assert registered.count("test_cubed") == 1
    assert len(registered) == len(light._done)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_tangent_is_not_dropped(cubed: Callable[..., Tensor]) -> None:
    x, layout, factor = inputs()
    with forward_ad.dual_level():
        assert cubed(x, layout, factor).tolist() == [2.0, 16.0, 54.0]
        dual = forward_ad.make_dual(x.detach(), x.detach())  # type: ignore[no-untyped-call]
        with pytest.raises(ImplementationError, match=r"test_cubed.* no forward mode"):
            cubed(dual, layout, factor)


def inputs() -> tuple[Tensor, list[Tensor], float]:
    return torch.arange(1.0, 4.0, requires_grad=True), [torch.ones(2)], 2.0


def test_its_value_and_gradient_are_the_operator_s(cubed: Callable[..., Tensor]) -> None:
    x, layout, factor = inputs()
    result = cubed(x, layout, factor)
    assert result.tolist() == [2.0, 16.0, 54.0]
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert gradient.tolist() == [6.0, 24.0, 54.0]
    with torch.no_grad():
        assert not cubed(x, layout, factor).requires_grad
    with torch.inference_mode():
        assert cubed(x, layout, factor).is_inference()


def test_a_mode_sees_one_call(cubed: Callable[..., Tensor]) -> None:
    seen = []

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, function: Any, _: Any, arguments: tuple[Any, ...] = (), given: Any = None
        ) -> Any:
            seen.append(str(function))
            return function(*arguments, **(given or {}))

    with Watch():  # type: ignore[no-untyped-call]
        cubed(*inputs())
    assert [name for name in seen if "cubed" in name] == ["encoder_engine.test_cubed.default"]


@pytest.mark.slow
def test_it_is_one_node_of_a_compiled_graph(cubed: Callable[..., Tensor]) -> None:
    x, layout, factor = inputs()
    compiled = torch.compile(lambda y: cubed(y, layout, factor) + 1, backend="aot_eager")
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    assert gradient.tolist() == [6.0, 24.0, 54.0]


@pytest.mark.slow
def test_it_passes_torch_s_own_check(cubed: Callable[..., Tensor]) -> None:
    torch.library.opcheck(cubed, inputs())  # type: ignore[arg-type]


def test_a_gradient_that_does_not_exist_is_refused() -> None:
    operator = torch.library.custom_op(
        "encoder_engine::test_constant",
        lambda x: x.clone(),
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )
    light.lighten()
    result = operator(torch.ones(2, requires_grad=True))
    with pytest.raises(ImplementationError, match="test_constant"):
        result.sum().backward()


def test_every_operator_of_the_kernels_is_shortened_once_it_is_chosen() -> None:
    x, weight = torch.ones(2, 4), torch.ones(4)
    ops.layer_norm(x, weight, weight, epsilon=1e-5)
    from torch._library.custom_ops import OPDEFS

    ours = {name for name in OPDEFS if name.startswith("encoder_engine::")}
    assert ours <= light._done | {"encoder_engine::tiles"}
