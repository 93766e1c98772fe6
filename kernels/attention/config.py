"""Launch shapes of the attention kernels, by GPU, head size, element size, terms and lengths.

Timed on an NVIDIA H200 (benchmarks/LOG.md): forward without biases and lists for heads of 32, 64
and 128, with dropout for heads of 64; the gradients for heads of 64 and 128, with dropout of 64.
The others are chosen from disassembly (tests/golden/kernel_resources.json): next to nothing spills,
on Hopper every product is an asynchronous wgmma, and where registers allow two or more programs
share a multiprocessor, so that one's exponentials overlap the other's products. wgmma takes 64
rows: the left operand's block, queries or in the gradient of key and value keys, has as many at
least.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from ..common.pinned import pinned


class Launch(NamedTuple):
    """A kernel's launch shape: queries and keys of a block, warps, stages of the pipeline."""

    block_rows: int
    block_keys: int
    num_warps: int
    num_stages: int
    # Limits registers so that several programs share a multiprocessor; None: as many as it takes.
    max_registers: int | None = None
    # Keys and values are read by TMA where their layout allows it.
    described: bool = False

    @property
    def block_tail(self) -> int:
        """Return the keys per block where the forward kernel masks: short blocks waste less."""
        return min(self.block_keys, 64)

    def sizes(self) -> dict[str, int]:
        """Return the block sizes, as arguments of the kernels."""
        return {"BLOCK_ROWS": self.block_rows, "BLOCK_KEYS": self.block_keys}

    def resources(self) -> dict[str, int]:
        """Return the warps, pipeline stages and register limit, as options of Triton's compiler."""
        given = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return given if self.max_registers is None else given | {"maxnreg": self.max_registers}

    def options(self) -> dict[str, int]:
        """Return all launch options of a kernel as keyword arguments."""
        return self.sizes() | self.resources()


class GluonLaunch(NamedTuple):
    """Launch shape of the forward kernel in Gluon: queries and keys of a block, stages of its ring.

    The ring is the shared memory for blocks of keys and values that are being loaded or read.
    ``turns``: two consumers, of 64 query rows each, start matrix products alternately.
    """

    block_rows: int
    block_keys: int
    num_stages: int
    turns: bool = False

    @property
    def num_consumers(self) -> int:
        """Return the number of consumers: groups of four warps, which own 64 rows each."""
        return self.block_rows // 64

    @property
    def num_programs(self) -> int:
        """Return how many programs share a multiprocessor."""
        return 2 // self.num_consumers

    @property
    def max_registers(self) -> int:
        """Return the registers of each thread at the start, before consumers take more."""
        return 128 if self.num_consumers == 1 else 168

    def constants(self) -> dict[str, int | bool]:
        """Return the kernel's compile-time constants that follow from the launch shape."""
        return {
            "BLOCK_KEYS": self.block_keys,
            "STAGES": self.num_stages,
            "CONSUMERS": self.num_consumers,
            "TURNS": self.turns,
            # Registers of a consumer's thread. Those left are 40 for a thread of the producer.
            "REGISTERS": 216 if self.num_consumers == 1 else 232,
        }


# By head size and rows of a program. Nothing spills, and two programs of one consumer, or one of
# two, fill the registers of a multiprocessor.
GLUON_LAUNCHES = {
    (64, 64): GluonLaunch(64, 128, 2),
    (64, 128): GluonLaunch(128, 128, 3),
    (128, 64): GluonLaunch(64, 64, 2),
    (128, 128): GluonLaunch(128, 128, 2),
}


class GluonBackwardLaunch(NamedTuple):
    """Launch shape of the backward kernel in Gluon: stages of its ring buffer, place of sums.

    ``sum_blocks``: how many blocks of 64 query rows have the sum of their gradient in shared
    memory. If it is 0, all sums are in scratch memory.
    """

    num_stages: int
    sum_blocks: int
    max_registers: int = 168  # of a thread at the start, before consumers take more

    def constants(self) -> dict[str, int]:
        """Return the kernel's compile-time constants that follow from the launch shape."""
        return {"STAGES": self.num_stages, "SUM_BLOCKS": self.sum_blocks, "REGISTERS": 232}


# For sequences of up to 512 tokens and one query head per key head, which fill the shared memory,
# and for all others.
GLUON_BACKWARD_SHARED = GluonBackwardLaunch(2, 8)
GLUON_BACKWARD_SCRATCH = GluonBackwardLaunch(2, 0)
# The rows of a program of that kernel, which owns a whole sequence.
WHOLE_SEQUENCE = 2**30


class Launches(NamedTuple):
    """The launch shapes of the forward kernel and of the backward kernels, two or a single one."""

    # In Gluon on request alone, see ``pin``: that kernel has not run on a GPU.
    forward: Launch | GluonLaunch
    query: Launch
    key: Launch
    short: Launch | None = None  # of the one kernel, where every sequence fits into a block
    # Whether the one kernel in Gluon computes the gradients, on request alone.
    gluon_gradients: bool = False

    @property
    def key_block(self) -> int:
        """Return how many keys a block has in the kernel that computes the gradients of keys."""
        return self.key.block_keys if self.short is None else self.short.block_keys


class Extras(NamedTuple):
    """The options of an attention call that take registers in the kernels."""

    dropout: bool = False
    bias: bool = False  # what is read for each score: a relative bias, or positions
    listed: bool = False  # queries or global keys
    positions: bool = False  # disentangled attention
    masked: bool = False  # a window or a causal border: every block of keys is masked
    slopes: bool = False  # ALiBi's


class Longest(NamedTuple):
    """The most queries and keys of any sequence, rounded up to powers of two; 0: not known."""

    queries: int = 0
    keys: int = 0


def choose_launches(
    head_dim: int,
    *,
    itemsize: int,
    extras: Extras,
    longest: Longest = Longest(),  # noqa: B008
    hopper: bool = True,
) -> Launches:
    """Return each attention kernel's launch shape.

    ``itemsize``: bytes of an element. ``hopper``: the GPU has wgmma and 227 KiB of shared memory.
    """
    # Cached: a call asks twice, and all layers ask the same. Dynamo cannot trace a cache.
    table = _table if torch.compiler.is_compiling() else _known_table
    launches = table(head_dim, itemsize, extras, longest, hopper)
    return Launches(
        forward=pinned("attention_forward", launches.forward),
        query=pinned("attention_query", launches.query),
        key=pinned("attention_key", launches.key),
        short=pinned("attention_short", launches.short),
        gluon_gradients=pinned("attention_gluon_gradients", False),
    )


def _table(
    head_dim: int, itemsize: int, extras: Extras, longest: Longest, hopper: bool
) -> Launches:
    if itemsize == 4:
        launches = _float32(head_dim, extras)
    elif hopper:
        launches = _hopper(head_dim, extras, longest)
    else:
        launches = _ampere(head_dim, extras)
    return launches._replace(short=_short(head_dim, itemsize, extras, longest, hopper))


_known_table = cache(_table)


def _short(
    head_dim: int, itemsize: int, extras: Extras, longest: Longest, hopper: bool
) -> Launch | None:
    """Return the launch shape of the single backward kernel for short sequences.

    None: the options, the lengths or the GPU do not allow that kernel.
    """
    if extras.bias or extras.listed or longest.queries != longest.keys or not longest.keys:
        return None
    if not hopper or itemsize == 4:
        return None
    if longest.keys <= 64 and head_dim <= 128:
        return Launch(64, 64, 4, 1)
    if longest.keys <= 128 and head_dim <= 64:
        return Launch(128, 128, 8, 1)
    return None


def can_describe_width(head_dim: int) -> bool:
    """Return whether TMA can read heads of this size: a power of two, at least 16."""
    return head_dim >= 16 and head_dim & (head_dim - 1) == 0


# Keys from which heads of 128 gain by longer blocks of keys.
LONG_KEYS = 1024


def _hopper(head_dim: int, extras: Extras, longest: Longest) -> Launches:
    dropout, bias, listed, positions, masked, slopes = extras
    narrow = dropout or bias
    if head_dim <= 64:
        # Small heads with positions or lists: ptxas serialises products of larger blocks (C7515).
        small = (positions or listed) and head_dim <= 32
        forward = Launch(128, 32 if small else 64, 8, 3, None if bias or listed else 128)
        if not (narrow or listed):
            # Heads of 32 have too little to load for TMA's blocks of 128 keys to gain.
            by_tma = head_dim > 32 and can_describe_width(head_dim) and not masked
            forward = Launch(64, 128, 4, 2, None, True) if by_tma else Launch(64, 64, 4, 3, 128)
        # With slopes and three stages Triton 3.9's ptxas serialises its products.
        query = Launch(128, 64, 8, 2 if listed or slopes else 3, None if listed else 128)
        timed = extras == Extras(dropout=True) and head_dim > 32
        if narrow:
            query = Launch(64, 32, 4, 3) if timed else Launch(128, 32, 8, 2)
        rows = 32 if positions or (dropout and not timed) else 64
        launches = Launches(
            forward=forward,
            query=query,
            key=Launch(16 if small or (bias and listed) else rows, 64, 4, 2),
        )
    elif head_dim <= 128:
        by_tma = can_describe_width(head_dim) and not (bias or masked)
        forward = Launch(128, 32 if bias else 64 if dropout else 128, 8, 2, described=by_tma)
        if not (narrow or listed):
            short = 64 < longest.keys < LONG_KEYS and by_tma
            forward = (
                Launch(64, 32, 4, 3, 168, True) if short else Launch(64, 64, 4, 2, None, by_tma)
            )
        narrow_key = Launch(16, 64 if bias and listed else 128, 8, 2)
        launches = Launches(
            forward=forward,
            query=Launch(128, 32, 8, 2) if narrow else Launch(128, 64, 8, 2),
            key=narrow_key if narrow else Launch(32, 64, 4, 2),
        )
    else:
        # Blocks of 64 rows would spill: these multiply by the older instructions.
        launches = _ampere(head_dim, extras)
        if not narrow:
            launches = launches._replace(forward=Launch(128, 32, 8, 2))
        return launches
    return _shortened(launches, head_dim, longest)


def _shortened(launches: Launches, head_dim: int, longest: Longest) -> Launches:
    """Return ``launches`` with blocks of 64 queries and 4 warps if no sequence has more queries.

    Where the most queries are not known, ``launches`` is returned unchanged.
    """
    if not 0 < longest.queries <= 64:
        return launches
    keys = min(launches.forward.block_keys, 64)
    query_keys = min(launches.query.block_keys, 64 if head_dim <= 64 else 32)
    return launches._replace(forward=Launch(64, keys, 4, 2), query=Launch(64, query_keys, 4, 2))


def _float32(head_dim: int, extras: Extras) -> Launches:
    wide = head_dim <= 64 and not extras.bias
    return Launches(
        forward=Launch(64, 32, 8, 1) if wide else Launch(32, 32, 4, 1),
        query=Launch(32, 32 if head_dim <= 128 else 16, 4 if head_dim <= 64 else 8, 1),
        key=Launch(32 if wide or 64 < head_dim <= 128 else 16, 32, 4 if head_dim <= 64 else 8, 1),
    )


def _ampere(head_dim: int, extras: Extras) -> Launches:
    return Launches(
        _ampere_forward(head_dim, extras),
        _ampere_query(head_dim, extras),
        _ampere_key(head_dim, extras),
    )


def _ampere_forward(head_dim: int, extras: Extras) -> Launch:
    narrow = extras.dropout or extras.bias
    if head_dim <= 32:
        return Launch(64, 64, 4, 3)
    if head_dim <= 64:
        return Launch(128, 64 if narrow else 128, 8, 3)
    if head_dim <= 128:
        return Launch(128, 32, 8, 3)
    return Launch(32, 16, 8, 2) if narrow else Launch(64, 32, 8, 2)


def _ampere_query(head_dim: int, extras: Extras) -> Launch:
    narrow = extras.dropout or extras.bias
    if head_dim <= 32:
        return Launch(64, 64, 4, 2)
    if head_dim <= 64:
        return Launch(128, 32 if narrow else 64, 8, 2)
    if head_dim <= 128:
        if extras.bias and extras.dropout:
            return Launch(32, 32, 4, 2)
        return Launch(64, 32 if extras.bias or (narrow and extras.listed) else 64, 8, 2)
    return Launch(32, 32, 8, 1)


def _ampere_key(head_dim: int, extras: Extras) -> Launch:
    if head_dim <= 64:
        narrow = extras.listed or extras.positions or (extras.bias and extras.dropout)
        return Launch(16 if narrow else 32, 64, 4, 2)
    if head_dim <= 128:
        return Launch(16 if extras.dropout or extras.bias else 32, 64, 8, 1)
    return Launch(32, 32, 8, 1)
