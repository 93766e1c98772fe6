"""Measures the machine's peak rates: of matrix products (GEMM) and of copying.

A peak rate is the best of many tries, not a median. A shared machine is faster at some times than
at others, so a case measures the peak before and after its rounds.
"""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING

import torch

from benchmarks.measuring.worker import run_in_worker
from encoder_engine import ops
from encoder_engine.families.config import spec_from_config
from encoder_engine.inference.layers import pack
from encoder_engine.inference.rows import project_rows
from encoder_engine.models.checkpoints.stacking import to_array, to_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from torch import Tensor

__all__ = ["Ceiling", "copy_ceiling", "encoder_operations", "product_ceiling"]

SEED = 3
# (rows, features in, features out): feed-forward layers of MiniLM, BERT-base and BERT-large.
CPU_SIZES = ((2048, 384, 1536), (2048, 768, 3072), (1024, 1024, 4096))
GPU_SIZES = ((8192, 8192, 8192), (32768, 1024, 4096))
# Many times the largest cache.
CPU_COPY_BYTES, GPU_COPY_BYTES = 1 << 28, 1 << 32
TRIES, SECONDS = 5, 0.3
# What was looked at so many seconds ago is not looked at again.
RECENT = 30.0


class Ceiling:
    """A peak rate per second; a call measures it, unless it did in the last ``RECENT`` seconds."""

    def __init__(self, measure: Callable[[], float]) -> None:
        self._measure = measure
        self._rate = 0.0
        self._looked = -math.inf

    def __call__(self) -> float:
        if time.monotonic() - self._looked > RECENT:
            self._rate = self._measure()
            self._looked = time.monotonic()
        return self._rate


@functools.cache
def product_ceiling(device: str, precision: str, threads: int) -> Ceiling:
    """Return the peak rate of multiplications and additions in GEMMs, by any implementation here.

    ``precision``: "float32", "float16", "bfloat16" or "int8".
    ``threads``: for a CPU, measured in a process of its own, which frees the memory.
    """
    measure = functools.partial(_product_rate, device, precision, threads)
    if device == "cpu":
        return Ceiling(functools.partial(run_in_worker, measure, threads))
    return Ceiling(measure)


@functools.cache
def copy_ceiling(device: str, threads: int) -> Ceiling:
    """Return the peak rate of copying more than fits in caches: bytes read plus bytes written."""
    return Ceiling(functools.partial(_copy_rate, device, threads))


def encoder_operations(config: Mapping[str, Any], lengths: Sequence[int]) -> int:
    """Count the multiplications and additions of an encoder's GEMMs, without padding.

    ``lengths``: the number of tokens of each text. What DeBERTa's relative positions add to
    attention is not counted.
    """
    spec = spec_from_config(config)
    operations = 0
    for block in spec.blocks:
        heads, keys = block.attention.query_width, block.attention.key_width
        matrices = 3 if block.feed_forward.gated else 2
        weights = spec.width * (2 * heads + 2 * keys + matrices * block.feed_forward.width)
        window, causal = block.attention.window, block.attention.causal
        pairs = sum(_num_pairs(length, window, causal=causal) for length in lengths)
        operations += 2 * sum(lengths) * weights + 4 * heads * pairs
    return operations


def _num_pairs(length: int, window: int | None, *, causal: bool) -> int:
    """Count the pairs of a query and a key that it attends to, in a text of ``length`` tokens.

    ``window``: a query attends to so many keys on each side.
    """
    if causal:
        reach = length if window is None else window + 1
        return sum(min(row + 1, reach) for row in range(length))
    if window is None or window >= length:
        return length**2
    return sum(min(length - 1, row + window) - max(0, row - window) + 1 for row in range(length))


def _product_rate(device: str, precision: str, threads: int) -> float:
    torch.set_num_threads(threads)
    rates = []
    with torch.inference_mode():
        for sizes in GPU_SIZES if device == "cuda" else CPU_SIZES:
            operations = 2 * math.prod(sizes)
            ways = _products(device, precision, *sizes)
            rates += [operations / _least_seconds(product, device) for product in ways]
    return max(rates)


def _copy_rate(device: str, threads: int) -> float:
    torch.set_num_threads(threads)
    number = GPU_COPY_BYTES if device == "cuda" else CPU_COPY_BYTES
    source = torch.zeros(number, dtype=torch.int8, device=device)
    target = torch.zeros_like(source)
    return 2 * number / _least_seconds(lambda: target.copy_(source), device)


def _products(
    device: str, precision: str, rows: int, columns: int, features: int
) -> Iterator[Callable[[], Tensor]]:
    """Yield calls that compute one GEMM, by every implementation that could be the fastest here."""
    generator = torch.Generator(device).manual_seed(SEED)
    x_TK = torch.randn(rows, columns, generator=generator, device=device)
    weight_NK = torch.randn(features, columns, generator=generator, device=device)
    if precision == "int8":
        plain_TK, plain_NK = (x.clamp(-127, 127).to(torch.int8) for x in (x_TK, weight_NK))
        yield lambda: torch._int_mm(plain_TK, plain_NK.t())
        quantized = ops.quantize_weight(weight_NK)
        bytes_TK, scale_T = ops.quantize_rows(x_TK)
        for name in _able("quantized_linear", device, "float32"):
            yield functools.partial(
                ops.quantized_linear, bytes_TK, scale_T, quantized, implementation=name
            )
        return
    dtype = getattr(torch, precision)
    x_TK, weight_NK = x_TK.to(dtype), weight_NK.to(dtype)
    yield lambda: torch.nn.functional.linear(x_TK, weight_NK)
    if device == "cpu" and precision in ("float32", "bfloat16"):
        layer, rows_TK = pack(to_array(weight_NK), None), to_array(x_TK)
        threads = torch.get_num_threads()
        yield lambda: to_tensor(project_rows(rows_TK, layer, num_threads=threads))


def _able(operation: str, device: str, dtype: str) -> list[str]:
    """Return the names of an operation's implementations that run here, without ``reference``."""
    reasons = ops.explain(operation, device=device, dtype=dtype)
    return [name for name, reason in reasons if reason is None and name != "reference"]


def _least_seconds(call: Callable[[], object], device: str) -> float:
    def once() -> float:
        started = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    once()
    ends = time.perf_counter() + SECONDS
    least = min(once() for _ in range(TRIES))
    while time.perf_counter() < ends:
        least = min(least, once())
    return least
