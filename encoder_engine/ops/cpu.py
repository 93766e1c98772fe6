"""Decides whether a kernel of the C++ extension supports a call."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from encoder_engine.ops.registry import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.ops.registry import CallFacts

DTYPES = ("float32", "bfloat16")


def native_instruction_set() -> str | None:
    """Return the instruction set that the extension chose at load time; None if not built."""
    try:
        from encoder_engine import _native
    except ImportError:
        return None
    return _native.instruction_set()


@cache
def _instruction_set() -> str | None:
    return native_instruction_set()


def refuse_native(facts: CallFacts) -> str | None:
    """Return the reason why no native kernel without gradients can take the call, or None."""
    if facts.requires_grad and refuse_trained(facts) is None:
        return "it computes no gradients"
    return refuse_trained(facts)


def refuse_trained(facts: CallFacts) -> str | None:
    """Return the reason why no native kernel with gradients can take the call, or None."""
    if _instruction_set() is None:
        return "the extension is not built"
    if facts.device != "cpu":
        return f"it computes on the CPU, the tensors are on {facts.device}"
    if facts.dtype not in DTYPES:
        return f"it computes {', '.join(DTYPES)}, not {facts.dtype}"
    if facts.transformed:
        return "it is neither traced with gradients, nor transformed, nor differentiated forward"
    return None


@cache
def is_amd() -> bool:
    """Return whether the processor is AMD's; False where the extension is not built."""
    if _instruction_set() is None:
        return False
    from encoder_engine import _native

    return _native.is_amd()


def trains_in_bfloat16() -> bool:
    """Return whether training steps are faster in bfloat16: by AVX-512 on AMD, by AMX on Intel.

    Intel's AVX-512 multiplies slower in bfloat16 than in float32. On arm64 no step has been timed.
    """
    level = _instruction_set()
    return level == "amx" or (level == "avx512_bf16" and is_amd())


def release_kept_memory() -> None:
    """Return to the system the memory that training steps kept for later steps."""
    if _instruction_set() is None:
        return
    from encoder_engine import _native

    _native.release_kept_memory()


def is_automatic(_facts: CallFacts) -> bool:
    """Return whether native kernels may be chosen automatically.

    They may not where only the portable ones run: these are slower.
    """
    return _instruction_set() != "portable"


def native(room: str, refuse: Callable[[Any], str | None] = refuse_trained) -> Implementation:
    """Return an operation's ``native`` implementation; ``room``: the name of its file."""
    module = f"encoder_engine.ops.native.{room}"
    return Implementation(name="native", module=module, refuse=refuse, automatic=is_automatic)
