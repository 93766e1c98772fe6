"""Implementations by the C++ extension; whether it is built, and what it runs on this processor."""

from __future__ import annotations

__all__ = ["native_instruction_set"]


def native_instruction_set() -> str | None:
    """Name the instruction set the extension chose at load time; None: it is not built."""
    try:
        from encoder_engine import _native
    except ImportError:
        return None
    return _native.instruction_set()
