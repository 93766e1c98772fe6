"""Issues warnings that point at the caller's line, however deep in the package."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn_caller"]


def warn_caller(warning: Warning, *, passed_on: tuple[str, ...] = ("encoder_engine",)) -> None:
    """Issue a warning at the first stack frame outside the packages ``passed_on``."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and _package(frame.f_globals) in passed_on:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
