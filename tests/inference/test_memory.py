"""Memory of packed weights: disjoint, aligned, and one weight after the other."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_engine.inference import memory
from encoder_engine.inference.memory import ALIGNMENT, WeightMemory, address


@pytest.mark.parametrize("block", [1, 1000, memory.BLOCK])
def test_weights_are_aligned_and_overlap_nowhere(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "BLOCK", block)
    taken = WeightMemory()
    sizes = [1, ALIGNMENT, 999, 300, 5000, 64, 937]
    weights = [taken.take(size) for size in sizes]
    for number, weight in enumerate(weights):
        weight[:] = number
    for number, (weight, size) in enumerate(zip(weights, sizes, strict=True)):
        assert weight.shape == (size,)
        assert address(weight) % ALIGNMENT == 0
        assert (weight == number).all()


def test_small_weights_lie_side_by_side() -> None:
    taken = WeightMemory()
    first, second = taken.take(999), taken.take(10)
    assert address(second) - address(first) == 16 * ALIGNMENT
    assert np.shares_memory(first.base, second)
