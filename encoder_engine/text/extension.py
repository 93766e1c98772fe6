"""Imports the C++ extension at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import MissingExtensionError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["extension"]


def extension() -> ModuleType:
    """Import the C++ extension; raises :class:`MissingExtensionError` where it is not built."""
    try:
        from encoder_engine import _native
    except ImportError as error:
        raise MissingExtensionError(
            "tokenizing needs the native extension, which is not built for this Python "
            f"({error}); build it with: pip install . (or, in a checkout, "
            "python setup.py build_ext --inplace)"
        ) from error
    return _native
