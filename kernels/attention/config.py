"""Launch shapes of the attention kernels, by head size, element size and register use.

Chosen so that nothing spills on sm_90 (tests/golden/kernel_resources.json); not yet timed.
"""

from __future__ import annotations

from typing import NamedTuple

from ..common.pinned import pinned


class Launch(NamedTuple):
    """Rows and keys of a block, warps, and stages of the software pipeline."""

    block_rows: int
    block_keys: int
    num_warps: int
    num_stages: int

    def sizes(self) -> dict[str, int]:
        """Return the block sizes, as arguments of the kernels."""
        return {"BLOCK_ROWS": self.block_rows, "BLOCK_KEYS": self.block_keys}

    def options(self) -> dict[str, int]:
        """Return all fields, as keyword arguments of a launch."""
        return self.sizes() | {"num_warps": self.num_warps, "num_stages": self.num_stages}


class Launches(NamedTuple):
    """The launch shapes of the forward kernel and of backward's two."""

    forward: Launch
    query: Launch
    key: Launch


class Extras(NamedTuple):
    """The options of a call that take registers."""

    dropout: bool = False
    bias: bool = False
    listed: bool = False  # queries or global keys


def choose_launches(head_dim: int, *, itemsize: int, extras: Extras) -> Launches:
    """Choose the launch shape of each kernel."""
    return Launches(
        forward=pinned("attention_forward", _forward_launch(head_dim, itemsize, extras)),
        query=pinned("attention_query", _query_launch(head_dim, itemsize, extras)),
        key=pinned("attention_key", _key_launch(head_dim, itemsize, extras)),
    )


def _forward_launch(head_dim: int, itemsize: int, extras: Extras) -> Launch:
    if itemsize == 4:
        return Launch(64 if head_dim <= 64 else 32, 32, 8, 1)
    narrow = extras.dropout or extras.bias
    if head_dim <= 64:
        return Launch(128, 64 if narrow else 128, 8, 3)
    if head_dim <= 128:
        return Launch(128, 32 if narrow else 64, 8, 3)
    return Launch(32 if narrow else 64, 32, 8, 2)


def _query_launch(head_dim: int, itemsize: int, extras: Extras) -> Launch:
    if itemsize == 4:
        return Launch(32, 32 if head_dim <= 128 else 16, 4 if head_dim <= 64 else 8, 1)
    if head_dim <= 64:
        return Launch(128, 32 if extras.dropout or extras.bias else 64, 8, 2)
    if head_dim <= 128:
        if extras.bias and extras.dropout:
            return Launch(32, 32, 4, 2)
        narrow = extras.bias or (extras.dropout and extras.listed)
        return Launch(64, 32 if narrow else 64, 8, 2)
    return Launch(32, 32, 8, 1)


def _key_launch(head_dim: int, itemsize: int, extras: Extras) -> Launch:
    if itemsize == 4:
        return Launch(32 if head_dim <= 128 else 16, 32, 4 if head_dim <= 64 else 8, 1)
    if head_dim <= 64:
        if extras.dropout:
            return Launch(32, 64, 8, 1) if extras.listed else Launch(32, 64, 4, 2)
        return Launch(64, 64, 4, 2)
    return Launch(32, 64, 8, 1) if head_dim <= 128 else Launch(32, 32, 8, 1)
