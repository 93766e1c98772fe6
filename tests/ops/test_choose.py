"""An implementation is chosen by facts, explained in sentences, and never swapped silently."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from encoder_engine import ops
from encoder_engine.errors import ImplementationError, UnknownNameError
from encoder_engine.ops.registry import IMPLEMENTATION_NAMES, Explanation, choose_implementation
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from collections.abc import Callable


SUNDAY = "it is Sunday"


def test_the_first_that_can_is_chosen() -> None:
    told: Explanation = [("triton", SUNDAY), ("native", None), ("aten", None)]
    assert choose_implementation("op", told, None) == "native"


def test_a_request_is_honoured_or_refused_with_the_reason() -> None:
    told: Explanation = [("triton", SUNDAY), ("aten", None)]
    assert choose_implementation("op", told, "aten") == "aten"
    with pytest.raises(ImplementationError, match="triton was requested, but it is Sunday"):
        choose_implementation("op", told, "triton")
    with pytest.raises(UnknownNameError, match="it has triton, aten"):
        choose_implementation("op", told, "native")


def test_when_all_refuse_every_reason_is_told() -> None:
    told: Explanation = [("triton", SUNDAY), ("aten", SUNDAY)]
    with pytest.raises(ImplementationError, match="triton: it is Sunday; aten: it is Sunday"):
        choose_implementation("op", told, None)


@pytest.mark.parametrize("operation", ops.operations())
def test_every_operation_has_a_reference_and_something_that_runs_anywhere(operation: str) -> None:
    told = ops.explain(operation)
    names = [name for name, _ in told]
    assert names[-1] == "reference"
    assert "aten" in names
    assert names == sorted(names, key=IMPLEMENTATION_NAMES.index), "best first"
    assert choose_implementation(operation, told, None) != "reference"


@pytest.mark.parametrize("operation", ops.operations())
@pytest.mark.parametrize("implementation", IMPLEMENTATION_NAMES)
def test_every_named_implementation_has_the_operations_function(
    operation: str, implementation: str
) -> None:
    import importlib

    for candidate in ops.find_operation(operation).implementations:
        if candidate.name == implementation:
            module = importlib.import_module(candidate.module)
            assert callable(getattr(module, operation))


def test_use_names_one_for_all_operations_or_for_one_and_nests() -> None:
    x, weight = torch.randn(3, 4), torch.randn(2, 4)
    plain = ops.linear(x, weight)
    with ops.use("reference"):
        inside = ops.linear(x, weight)
        with ops.use("aten", operation="linear"):
            assert torch.equal(ops.linear(x, weight), plain)
        assert torch.equal(ops.linear(x, weight), inside)
        with pytest.raises(ImplementationError), ops.use("native", operation="linear"):
            # Without gradients.
            ops.linear(x, weight)
    assert torch.equal(ops.linear(x, weight), plain)
    truth = (x.double() @ weight.double().T).float()
    assert torch.equal(inside, truth)


def test_use_is_restored_after_an_error_and_seen_by_other_threads() -> None:
    seen: list[torch.Tensor] = []
    x = torch.randn(40, 300)

    def fail_inside() -> None:
        with ops.use("reference"):
            thread = threading.Thread(target=lambda: seen.append(ops.linear(x, x)))
            thread.start()
            thread.join()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert torch.equal(seen[0], (x.double() @ x.double().T).float())
    assert not torch.equal(seen[0], ops.linear(x, x))


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="layer_norm"):
        ops.explain("layernorm")
    with pytest.raises(UnknownNameError, match="head_dim"):
        ops.explain("attention", head_size=64)
    with pytest.raises(UnknownNameError, match="triton, native, aten, reference"), ops.use("cuda"):
        pass


def test_explain_takes_torch_dtypes() -> None:
    assert ops.explain("attention", dtype=torch.float16) == ops.explain(
        "attention", dtype="float16"
    )


LAYOUT, IDS = Sequences.from_lengths([3, 2]), torch.arange(5)
OF_ROWS: dict[str, Callable[..., Tensor]] = {
    "layer_norm": lambda x, by: ops.layer_norm(
        x, torch.ones(8).to(x), None, epsilon=1e-5, implementation=by
    ),
    "rms_norm": lambda x, by: ops.rms_norm(x, torch.ones(8).to(x), epsilon=1e-5, implementation=by),
    "embedding": lambda x, by: ops.embedding(
        *(IDS, None, None),
        token_weight_VE=x,
        position_weight_PE=None,
        segment_weight_SE=None,
        norm_weight_E=torch.ones(8).to(x),
        norm_bias_E=None,
        epsilon=1e-5,
        implementation=by,
    ),
    "bias_gelu": lambda x, by: ops.bias_gelu(x, None, implementation=by),
    "swiglu": lambda x, by: ops.swiglu(x, implementation=by),
    "pooling": lambda x, by: ops.pooling(x, LAYOUT, implementation=by),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", OF_ROWS)
def test_forward_mode_loses_no_tangent(name: str) -> None:
    call, x = OF_ROWS[name], torch.linspace(-1.0, 2.0, 40).view(5, 8)
    tangent = torch.cos(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)  # type: ignore[no-untyped-call]
        found = forward_ad.unpack_dual(call(dual, None)).tangent  # type: ignore[no-untyped-call]
    assert found is not None
    _, expected = torch.autograd.functional.jvp(  # type: ignore[no-untyped-call]
        lambda x: call(x, "reference"), x.double(), tangent.double()
    )
    torch.testing.assert_close(found, expected.float())
