"""Decides whether kernels of the C++ extension support a call of an operation."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from encoder_engine.ops.registry import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.ops.registry import CallFacts

DTYPES = ("float32", "bfloat16")


@cache
def native_instruction_set() -> str | None:
    """Return the instruction set that the extension chose when loaded; None: it is not built."""
    try:
        from encoder_engine import _native
    except ImportError:
        return None
    return _native.instruction_set()


def refuse_native(facts: CallFacts) -> str | None:
    """Return why no native kernel without gradients can take the call; None: one can."""
    if facts.requires_grad and refuse_trained(facts) is None:
        return "it computes no gradients"
    return refuse_trained(facts)


def refuse_trained(facts: CallFacts) -> str | None:
    """Return why no native kernel with gradients can take the call; None: one can."""
    if native_instruction_set() is None:
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
    if native_instruction_set() is None:
        return False
    from encoder_engine import _native

    return _native.is_amd()


def trains_in_bfloat16() -> bool:
    """Return whether training steps are faster in bfloat16 on this processor.

    They are by AVX-512 on AMD and by AMX on Intel, whose AVX-512 multiplies slower in bfloat16 than
    in float32. On arm64, where no step has been timed, False.
    """
    level = native_instruction_set()
    return level == "amx" or (level == "avx512_bf16" and is_amd())


def release_kept_memory() -> None:
    """Return to the system the memory that training steps kept for later steps."""
    if native_instruction_set() is None:
        return
    from encoder_engine import _native

    _native.release_kept_memory()


def is_automatic(_facts: CallFacts) -> bool:
    """Return whether native kernels may be chosen without being requested by name.

    They may not where only the portable ones run, compiled for any processor: these are slower.
    """
    return native_instruction_set() != "portable"


def native(room: str, refuse: Callable[[Any], str | None] = refuse_trained) -> Implementation:
    """Describe an operation's ``native`` implementation, a function in ``ops/native/<room>.py``.

    ``refuse``: returns why a call cannot be taken, or None.
    """
    module = f"encoder_engine.ops.native.{room}"
    return Implementation(name="native", module=module, refuse=refuse, automatic=is_automatic)
