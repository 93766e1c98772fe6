"""A small checkpoint that all tasks begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.finetuning.tiny import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Save a small encoder with random weights and a vocabulary."""
    return write_checkpoint(tmp_path / "checkpoint")
