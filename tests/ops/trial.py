"""What a drawn call consists of: its inputs, the operation, plain PyTorch, and the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tests.ops.cases import rows as draw_rows

if TYPE_CHECKING:
    from tests.ops.compare import Functions

Options = Mapping[str, Any]
# What an option may be, the simplest first.
Space = dict[str, tuple[Any, ...]]
SIZES = (1, 0, 2, 3, 15, 16, 17, 33)
WIDTHS = (1, 2, 7, 16, 17, 40, 130)
BOTH = (False, True)
DROPOUTS = (0.0, 0.0, 0.3)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One call: ``run(by)`` is the operation by an implementation, ``truth`` the same in float64.

    ``terms`` is the length of the longest sum; ``gradient_size``: see :func:`compare`;
    ``output_size``: see :func:`compare_outputs`. What is not differentiable is held by its output.
    """

    inputs: dict[str, Tensor]
    run: Callable[[str], Functions]
    eager: Functions
    terms: int
    gradient_size: float = 0.0
    output_size: float = 0.0
    truth: Functions | None = None
    differentiable: bool = True


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What a trial is drawn with."""

    options: Options
    dtype: torch.dtype
    device: str
    seed: int
    by: str

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def rows(self, *shape: int, seed: int) -> Tensor:
        """Draw N(0, 1) in the trial's type."""
        return draw_rows(*shape, seed=self.seed + seed, dtype=self.dtype, device=self.device)

    def ids(self, num: int, limit: int, *, seed: int) -> Tensor:
        """Draw int64 [num] below a limit."""
        generator = torch.Generator().manual_seed(self.seed + seed)
        return torch.randint(0, limit, (num,), generator=generator).to(self.device)
