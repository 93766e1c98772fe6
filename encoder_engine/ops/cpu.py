"""When a kernel of the C++ extension can take a call."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encoder_engine.ops.registry import Facts

DTYPES = ("float32", "bfloat16")


def native_instruction_set() -> str | None:
    """Name the instruction set the extension chose at load time; None: it is not built."""
    try:
        from encoder_engine import _native
    except ImportError:
        return None
    return _native.instruction_set()


@cache
def _instruction_set() -> str | None:
    return native_instruction_set()


def refuse_native(facts: Facts) -> str | None:
    """Say why no native kernel can take the call, or None."""
    if _instruction_set() is None:
        return "the extension is not built"
    if facts.device != "cpu":
        return f"it computes on the CPU, the tensors are on {facts.device}"
    if facts.dtype not in DTYPES:
        return f"it computes {', '.join(DTYPES)}, not {facts.dtype}"
    if facts.requires_grad:
        return "it computes no gradients"
    return None


@cache
def is_amd() -> bool:
    """Say whether AMD made the processor, as far as the extension is there to know."""
    if _instruction_set() is None:
        return False
    from encoder_engine import _native

    return _native.is_amd()


def on_its_own(_facts: Facts) -> bool:
    """Say whether a native kernel may be chosen unasked: on narrow vectors PyTorch is faster."""
    return _instruction_set() != "portable"
