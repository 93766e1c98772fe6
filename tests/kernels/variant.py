"""A kernel at one shape, as the compile table lists it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One kernel at one shape: the constants and launch shape that a call would use."""

    module: str
    kernel: str
    name: str
    constants: dict[str, Any]
    num_warps: int
    num_stages: int = 3
    max_registers: int | None = None
    descriptors: dict[str, str] = field(default_factory=dict)
    element: str = field(default="*bf16")
