"""Launch shapes of the attention kernels, by head size, element size, and dropout.

Chosen so that nothing spills on sm_90 (tests/golden/kernel_resources.json); not yet timed.
"""

from __future__ import annotations

from typing import NamedTuple


class Launch(NamedTuple):
    """Rows and keys of a block, warps, and stages of the software pipeline."""

    block_rows: int
    block_keys: int
    num_warps: int
    num_stages: int


def forward_launch(head_dim: int, *, itemsize: int, dropout: bool) -> Launch:
    """Choose the forward kernel's launch shape."""
    if itemsize == 4:
        return Launch(64, 32, 4, 2) if head_dim <= 64 else Launch(32, 32, 4, 2)
    if head_dim <= 64:
        return Launch(128, 64 if dropout else 128, 8, 3)
    if head_dim <= 128:
        return Launch(128, 32 if dropout else 64, 8, 3)
    return Launch(64, 32, 8, 2)


def query_launch(head_dim: int, *, itemsize: int, dropout: bool) -> Launch:
    """Choose the launch shape of the kernel for the query's gradient."""
    if itemsize == 4:
        return Launch(32, 32, 4, 1)
    if head_dim <= 64:
        return Launch(128, 32 if dropout else 64, 8, 2)
    return Launch(64, 64, 8, 2) if head_dim <= 128 else Launch(64, 32, 8, 1)


def key_launch(head_dim: int, *, itemsize: int, dropout: bool) -> Launch:
    """Choose the launch shape of the kernel for the gradients of key and value."""
    if itemsize == 4:
        return Launch(32, 32, 4, 1)
    if head_dim <= 64:
        return Launch(32 if dropout else 64, 64, 4, 2)
    return Launch(32, 64, 8, 1) if head_dim <= 128 else Launch(32, 32, 8, 1)
