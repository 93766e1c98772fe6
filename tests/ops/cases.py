"""The shapes, dtypes and devices every operation is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from encoder_engine import ops
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from encoder_engine.ops.registry import Facts

# One token, ragged, a multiple of nothing, empty sequences at every place, equal lengths apart.
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
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
# The operations whose kernels multiply matrices.
MATRIX_PRODUCTS = ("attention", "masked_cross_entropy")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def lengths_id(lengths: list[int]) -> str:
    """Name a case by its lengths."""
    return "x".join(map(str, lengths)) or "empty"


def dtype_id(dtype: torch.dtype) -> str:
    """Name a case by its dtype."""
    return str(dtype).removeprefix("torch.")


def implementations(operation: str) -> list[str]:
    """Name what is held against the reference: every implementation that is not it."""
    found = ops.find_operation(operation).implementations
    return [i.name for i in found if i.name != "reference"]


def skip_if_refused(operation: str, implementation: str, facts: Facts) -> None:
    """Skip a case with the implementation's own reason."""
    reason = dict(ops.find_operation(operation).explain(facts, named=True))[implementation]
    interpreted = facts.device == "cpu" and implementation == "triton"
    if interpreted and facts.dtype == "bfloat16" and operation in MATRIX_PRODUCTS:
        reason = "Triton's interpreter computes tl.dot of bfloat16 wrongly"
    if reason is not None:
        pytest.skip(f"{implementation}: {reason}")


def skip_if_too_slow(implementation: str, num_rows: int, device: str) -> None:
    """Skip large cases of kernels that an interpreter runs; the small ones have the same edges."""
    if implementation == "triton" and device == "cpu" and num_rows > 140:
        pytest.skip(f"Triton's interpreter takes minutes for {num_rows} rows")


def rows(num_rows: int, *shape: int, seed: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Draw [num_rows, *shape] from N(0, 1), the same values (rounded) everywhere."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(num_rows, *shape, generator=generator, dtype=torch.float64)
    return drawn.to(dtype).to(device)


def sequences(lengths: list[int], device: str) -> Sequences:
    """Lay out the case's sequences."""
    return Sequences.from_lengths(lengths, device=device)
