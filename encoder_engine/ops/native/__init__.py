"""Implementations by the C++ extension, and the instruction set it runs on this processor."""

from __future__ import annotations

__all__ = ["native_instruction_set"]


def native_instruction_set() -> str | None:
    """Return the instruction set that the extension chose at load time; None: it is not built."""
    try:
        from encoder_engine import _native
    except ImportError:
        return None
    return _native.instruction_set()
