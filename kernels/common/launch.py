"""The GPU and the shape of a kernel launch, for the launchers of all kernels."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import torch
import triton
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def on_device(launcher: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function that launches kernels: it runs on the GPU of its first tensor.

    Triton launches on the current device, which need not be the one that holds the tensors.
    """

    @wraps(launcher)
    def launch(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        with _device_of(arguments):
            return launcher(*arguments, **keywords)

    return launch


def _device_of(arguments: tuple[Any, ...]) -> AbstractContextManager[object]:
    first = arguments[0]
    while not isinstance(first, Tensor):
        first = first[0]
    # Entering the current device again would cost a microsecond.
    if not first.is_cuda or first.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(first.device)


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


def is_hopper(x: Tensor) -> bool:
    """Return whether a tensor is on an H100, an H200 or a later data-centre GPU.

    Consumer GPUs of later generations have 99 KiB of shared memory and no wgmma. Interpreted
    kernels run at Hopper's shapes.
    """
    return not x.is_cuda or _capability(x.device.index)[0] in (9, 10)


def has_wgmma(x: Tensor) -> bool:
    """Return whether a tensor is on an H100 or H200: later GPUs have no wgmma."""
    return x.is_cuda and _capability(x.device.index)[0] == 9


@cache
def _processors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count


def num_processors(x: Tensor) -> int:
    """Return the number of multiprocessors of a tensor's GPU; for a CPU, that of an H100."""
    return _processors(x.device.index) if x.is_cuda else 132


def num_programs(x: Tensor, per_processor: int = 2) -> int:
    """Return how many programs to launch of a kernel that keeps partial sums over many rows.

    Each program keeps its sums in registers; afterwards they are added in a fixed order. More
    programs on a multiprocessor hide more of the memory's latency, and write more partial sums.
    """
    return per_processor * num_processors(x)


def cdiv(numerator: int, denominator: int) -> int:
    """Return the quotient, rounded up; ``triton.cdiv`` would take a microsecond outside kernels."""
    return -(-numerator // denominator)


@cache
def next_power_of_2(n: int) -> int:
    """Return the least power of two that is not below ``n``."""
    power: int = triton.next_power_of_2(n)
    return power


class RowTile(NamedTuple):
    """The rows and (padded) columns that a program computes at once, and its warps."""

    rows: int
    width: int
    num_warps: int


@cache
def row_tile(width: int, *, most_elements: int = 8192) -> RowTile:
    """Return a tile of whole rows of ``width`` elements, several if they are short.

    It has about 16 elements for each thread. ``most_elements``: the elements of a tile of several
    rows are at most a quarter of it.
    """
    block_width = next_power_of_2(max(width, 16))
    rows = max(1, min(16, most_elements // 4 // block_width))
    num_warps = min(16, max(4, block_width * rows // 512))
    return RowTile(rows, block_width, num_warps)
