"""The shapes, dtypes and devices every operation is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops.testing import LENGTHS, dtype_id, implementations, rows
from encoder_engine.packing import Sequences

if TYPE_CHECKING:
    from encoder_engine.ops.registry import CallFacts

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
__all__ = [
    "DEVICES",
    "DTYPES",
    "LENGTHS",
    "MATRIX_PRODUCTS",
    "dtype_id",
    "implementations",
    "lengths_id",
    "refusal",
    "rows",
    "sequences",
    "skip_if_refused",
    "too_slow",
]

# The operations whose kernels multiply matrices.
MATRIX_PRODUCTS = ("attention", "masked_cross_entropy")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def lengths_id(lengths: list[int]) -> str:
    """Name a case by its lengths."""
    return "x".join(map(str, lengths)) or "empty"


def refusal(operation: str, implementation: str, facts: CallFacts) -> str | None:
    """Return the implementation's own reason why it cannot take a case, or None."""
    reason = dict(ops.find_operation(operation).explain(facts, named=True))[implementation]
    interpreted = facts.device == "cpu" and implementation == "triton"
    if interpreted and facts.dtype == "bfloat16" and operation in MATRIX_PRODUCTS:
        reason = "Triton's interpreter computes tl.dot of bfloat16 wrongly"
    return None if reason is None else f"{implementation}: {reason}"


def skip_if_refused(operation: str, implementation: str, facts: CallFacts) -> None:
    """Skip where the implementation cannot take any case of a test."""
    reason = refusal(operation, implementation, facts)
    if reason is not None:
        pytest.skip(reason)


def too_slow(implementation: str, num_rows: int, device: str) -> str | None:
    """Refuse large cases of interpreted kernels; the small ones have the same edges."""
    if implementation == "triton" and device == "cpu" and num_rows > 140:
        return f"Triton's interpreter takes minutes for {num_rows} rows"
    return None


def sequences(lengths: list[int], device: str) -> Sequences:
    """Lay out the case's sequences."""
    return Sequences.from_lengths(lengths, device=device)
