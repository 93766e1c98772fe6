"""What a kernel needs to know of a packed batch, and of how its tensors lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor


class Layout(Protocol):
    """Where each of B sequences lies among T packed rows."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Row at which each sequence begins, and T last: [B + 1], on the host."""

    @property
    def max_seqlen(self) -> int:
        """Length of the longest sequence."""

    @property
    def cu_seqlens(self) -> Tensor:
        """The same on the tensors' device, int32 [B + 1]."""

    def tiles(self, block: int) -> Tensor:
        """Blocks of rows, int32 [n, 2]: (sequence, block)."""

    def __len__(self) -> int: ...


def rows_apart(x: Tensor) -> Tensor:
    """Return [T, H, D] with heads side by side; only the stride between tokens is free."""
    head_dim = x.shape[2]
    side_by_side = x.stride(2) == 1 and (x.stride(1) == head_dim or x.shape[1] == 1)
    return x if side_by_side else x.contiguous()
