"""The numeric rule of tests: error(ours) <= 2 x error(same-dtype eager PyTorch) + floor.

The floor is the error of rounding, for cases where eager happens to be exact. It has two parts,
neither chosen by hand: storing the result rounds it once; a sum of n terms of size s in a type of
precision u has an error of about ``sqrt(n) u s`` (Higham and Mary 2019, A New Approach to
Probabilistic Rounding Error Analysis). Half precision is summed in float32. A result in float64 may
be off by twice as much, because the truth has no more than that precision.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from encoder_engine.ops.registry import find_operation

if TYPE_CHECKING:
    from torch import Tensor

# One token; ragged; no multiple of a block; empty sequences anywhere; equal lengths apart.
LENGTHS: list[list[int]] = [
    [],
    [0],
    [1],
    [63],
    [507],
    [5, 5, 5, 5],
    [3, 0, 17, 3, 0, 1, 17, 64, 0],
    [0, 2, 1, 2, 130, 1],
]


def largest(*tensors: Tensor) -> float:
    """Return the largest absolute value in all tensors."""
    return max((float(t.abs().max()) for t in tensors if t.numel()), default=0.0)


def max_error(found: Tensor, truth: Tensor) -> float:
    """Return the largest absolute difference; infinite if ``found`` has NaN or infinities."""
    if found.numel() == 0:
        return 0.0
    assert bool(torch.isfinite(truth).all()), "the truth must be finite"
    difference = (found.double() - truth.double()).abs()
    return float(torch.nan_to_num(difference, nan=torch.inf).max())


def floor(truth: Tensor, dtype: torch.dtype, *, terms: int, size: float) -> float:
    """Return the error of rounding alone: storing once, and summing ``terms`` terms of ``size``."""
    summed_in = torch.promote_types(dtype, torch.float32)
    storing = torch.finfo(dtype).eps * largest(truth)
    summing = math.sqrt(terms) * torch.finfo(summed_in).eps * size
    return storing + summing


def assert_within_budget(
    ours: Tensor,
    eager: Tensor,
    truth: Tensor,
    what: str = "output",
    *,
    terms: int,
    size: float | None = None,
    eager_error: float = 0.0,
) -> None:
    """Assert that ``ours`` has at most twice the error of ``eager`` in its dtype, plus the floor.

    ``truth``: the result in float64.
    ``terms``: the length of the longest sum.
    ``size``: the magnitude of the sum's terms; default: that of the result.
    ``eager_error``: a known error of eager PyTorch, in addition to the one measured here.
    """
    assert truth.dtype == torch.float64
    assert ours.dtype == eager.dtype, f"{what}: {ours.dtype} against {eager.dtype}"
    assert ours.shape == eager.shape == truth.shape, f"{what}: {ours.shape}, {truth.shape}"
    size = largest(truth) if size is None else size
    rounding = floor(truth, ours.dtype, terms=terms, size=size)
    if ours.dtype == truth.dtype:
        # The truth is rounded as often.
        rounding *= 2
    allowed = 2.0 * max(max_error(eager, truth), eager_error) + rounding
    found = max_error(ours, truth)
    assert found <= allowed, f"{what}: error {found:.3e} exceeds the budget {allowed:.3e}"


def dtype_id(dtype: torch.dtype) -> str:
    """Return a dtype's name, for the id of a test."""
    return str(dtype).removeprefix("torch.")


def implementations(operation: str) -> list[str]:
    """List the implementations of an operation that tests compare with ``reference``."""
    found = find_operation(operation).implementations
    return [i.name for i in found if i.name != "reference"]


def rows(num_rows: int, *shape: int, seed: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Draw [num_rows, *shape] from N(0, 1), the same on every device; rounded to ``dtype``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(num_rows, *shape, generator=generator, dtype=torch.float64)
    return drawn.to(dtype).to(device)
