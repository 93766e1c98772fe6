"""Query, key and value of one projection: their gradients are one tensor, without a copy."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from encoder_engine import ops
from encoder_engine.ops import gpu
from tests.ops.cases import sequences
from tests.selection import covering

# A sequence and a head by one program, and by two kernels; with grouped heads.
CASES = {
    "short": ([5, 0, 1, 20], (2, 2), torch.float32),
    "short grouped": ([5, 0, 1, 20], (3, 1), torch.float16),
    "long grouped": ([130, 3], (2, 1), torch.float32),
}
HEAD_DIM = 16


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the names of PyTorch's operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Note a call."""
        self.names.append(function._schema.name.split("::")[1])
        return function(*arguments, **(keywords or {}))


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "is_by_triton", lambda _: True)


def projection(
    lengths: list[int], heads: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a projection and the gradient of what attention makes of it."""
    num_heads, key_heads = heads
    generator = torch.Generator().manual_seed(1)
    shape = (sum(lengths), (num_heads + 2 * key_heads) * HEAD_DIM)
    whole = torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
    return whole, torch.randn(
        shape[0], num_heads, HEAD_DIM, generator=generator, dtype=torch.float32
    ).to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "turned"),
    covering(product(CASES, (False, True)), lambda name, turned: [name, turned]),
)
def test_joined_gradient_has_the_bits_of_separate_ones(name: str, turned: bool) -> None:
    lengths, heads, dtype = CASES[name]
    layout = sequences(lengths, "cpu")
    turn = None
    if turned:
        turn = ops.Turn(ops.rotary_table(max(lengths), HEAD_DIM, base=10_000.0), layout.positions)
    found = []
    for joined in (False, True):
        whole, grad_output = projection(lengths, heads, dtype)
        # Not a leaf, which must not be changed in place.
        projected = whole.clone()
        if joined:
            parts = ops.split_heads(projected, HEAD_DIM, heads[1], turn)
        else:
            sizes = [heads[0], heads[1], heads[1]]
            heads_THD = projected.view(-1, sum(sizes), HEAD_DIM)
            query, key, value = torch.split(heads_THD, sizes, dim=1)
            if turn is not None:
                query, key = ops.rotary(query, key, *turn, implementation="triton")
            parts = (query, key, value.clone())
        mixed = ops.attention(*parts, layout, implementation="triton")
        with Calls() as calls:
            torch.autograd.backward(mixed, grad_output)
        assert whole.grad is not None
        assert ("cat" in calls.names) != joined
        found.append((mixed.detach(), whole.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.slow
def test_a_gradient_of_one_part_alone_is_right() -> None:
    whole = torch.randn(7, 6 * HEAD_DIM, requires_grad=True)
    _, key, _ = ops.split_heads(whole.clone(), HEAD_DIM, 2)
    torch.autograd.backward(key.sum())
    assert whole.grad is not None
    expected = torch.zeros(7, 6, HEAD_DIM)
    expected[:, 2:4] = 1.0
    assert torch.equal(whole.grad, expected.view(7, -1))


@pytest.mark.slow
def test_a_reader_of_the_projection_before_it_is_turned_is_an_error() -> None:
    whole = torch.randn(3, 3 * HEAD_DIM, requires_grad=True)
    projected = whole.clone()
    read = projected.square()
    turn = ops.Turn(ops.rotary_table(3, HEAD_DIM, base=10_000.0), torch.arange(3))
    query, _, _ = ops.split_heads(projected, HEAD_DIM, 1, turn)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(read.sum() + query.sum())
