"""Buckets of relative distances are those that T5 and MPNet were trained with."""

from __future__ import annotations

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import ShapeError


def test_buckets_are_single_distances_then_ever_longer_stretches() -> None:
    buckets = ops.relative_position_buckets(8, 16)
    # Two distances alone, then borders at 2 * 8^(1/2) = 5.66 and, for the last, 16.
    before = [0, 1, 2, 2, 2, 2] + [3] * 11
    after = [x + 4 for x in before[1:]]
    assert buckets.tolist() == [*before[:0:-1], 0, *after]


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 100), (16, 20)])
def test_buckets_are_those_of_the_families(num_buckets: int, max_distance: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    distances = torch.arange(-max_distance, max_distance + 1)
    expected = t5.T5Attention._relative_position_bucket(
        distances, bidirectional=True, num_buckets=num_buckets, max_distance=max_distance
    )
    assert torch.equal(ops.relative_position_buckets(num_buckets, max_distance), expected)


@pytest.mark.parametrize("sizes", [(0, 128), (30, 128), (32, 8)])
def test_sizes_that_make_no_buckets_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match="multiple of 4"):
        ops.relative_position_buckets(*sizes)
