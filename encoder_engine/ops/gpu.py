"""Decides whether Triton kernels support a call of an operation."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine.ops.registry import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from encoder_engine.ops.registry import CallFacts

DTYPES = ("float16", "bfloat16", "float32")


@cache
def _triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def interpreted() -> bool:
    """Return whether Triton interprets kernels, on any device, instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def refuse_triton(facts: CallFacts) -> str | None:
    """Return why no Triton kernel can take the call; None: one can."""
    if not _triton_installed():
        return "triton is not installed"
    if facts.device != "cuda" and not interpreted():
        return f"it needs a CUDA device, the tensors are on {facts.device}"
    if facts.dtype not in DTYPES:
        return f"it computes {', '.join(DTYPES)}, not {facts.dtype}"
    return None


def is_automatic(facts: CallFacts) -> bool:
    """Return whether Triton kernels may be chosen without being requested: on a CUDA device."""
    return facts.device == "cuda"


def triton(
    room: str,
    refuse: Callable[[Any], str | None] = refuse_triton,
    automatic: Callable[[Any], bool] = is_automatic,
) -> Implementation:
    """Describe an operation's ``triton`` implementation, a function in ``kernels/<room>``.

    ``refuse``: returns why a call cannot be taken, or None. ``automatic``: returns whether a call
    may be taken without being requested by name.
    """
    module = f"encoder_engine.kernels.{room}.operator"
    return Implementation(name="triton", module=module, refuse=refuse, automatic=automatic)


def is_by_triton(x: Tensor) -> bool:
    """Return whether Triton kernels compute with this tensor, if :func:`use` names no others."""
    takes = str(x.dtype).removeprefix("torch.") in DTYPES
    return is_gpu(x) and takes and _triton_installed()


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


def is_hopper(x: Tensor) -> bool:
    """Return whether a tensor is on an H100 or H200."""
    return x.is_cuda and _capability(x.device.index)[0] == 9


def is_gpu(x: Tensor) -> bool:
    """Return whether a tensor is on a GPU."""
    return x.is_cuda
