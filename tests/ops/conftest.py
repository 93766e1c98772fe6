"""Marks the cases that Triton interprets: they take a hundred times as long as compiled ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.ops import gpu
from tests.selection import parameters

if TYPE_CHECKING:
    import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave interpreted kernels out of ``make check``."""
    if "triton" in parameters(item).values() and gpu.interpreted():
        item.add_marker("slow")
