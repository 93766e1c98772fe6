"""Raises an error that tells how to install PyTorch, where it is needed and missing."""

from __future__ import annotations

import importlib.util
import sys

from encoder_engine.errors import MissingDependencyError

__all__ = ["require_torch"]


def require_torch(purpose: str) -> None:
    """Raise :class:`MissingDependencyError` unless PyTorch is installed; does not import it."""
    if "torch" in sys.modules:
        installed = sys.modules["torch"] is not None
    else:
        installed = importlib.util.find_spec("torch") is not None
    if not installed:
        raise MissingDependencyError(purpose, library="torch", extra="torch")
