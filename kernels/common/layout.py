"""What a kernel needs to know of a packed batch, and of how its tensors lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

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


class Selection(Protocol):
    """M of the packed rows, ascending."""

    @property
    def rows(self) -> Tensor:
        """Which rows they are, [M]."""

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The same on the host."""

    @property
    def within(self) -> Layout:
        """The selected rows alone, as sequences."""

    @property
    def places(self) -> Tensor:
        """Each one's place within its sequence, int32 [M]."""

    def shared_with(self, other: Any) -> tuple[Tensor, Selection]:
        """Return where in this list the rows that both have are, int64, and these rows."""

    def __len__(self) -> int: ...


def rows_apart(x: Tensor) -> Tensor:
    """Return [T, H, D] with heads side by side; only the stride between tokens is free."""
    head_dim = x.shape[2]
    side_by_side = x.stride(2) == 1 and (x.stride(1) == head_dim or x.shape[1] == 1)
    return x if side_by_side else x.contiguous()
