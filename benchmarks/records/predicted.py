"""Bounds of the GPU kernels from their disassembly: predicted, never measured.

The table is made and held by ``python -m tests.kernels.bounds``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "kernel_bounds.json"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A kernel's inner loop on Hopper, and its bounds as a share of the tensor cores' peak."""

    kernel: str
    instructions: int
    registers: int
    residents: int
    serial: float
    overlapped: float


def read_predictions(table: Path = TABLE) -> list[Prediction]:
    """Read the kernels that multiply matrices; none where there is no table."""
    if not table.is_file():
        return []
    kernels = json.loads(table.read_text("utf-8"))["kernels"]
    return [
        Prediction(
            kernel=name,
            instructions=row["instructions"],
            registers=row["registers"],
            residents=row["residents"],
            serial=row["serial"],
            overlapped=row["overlapped"],
        )
        for name, row in kernels.items()
        if "serial" in row
    ]
