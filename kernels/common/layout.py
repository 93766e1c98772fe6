"""The layout of a packed batch and of its tensors, as kernels need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor


class Layout(Protocol):
    """The offsets of B sequences among T packed rows."""

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """First row of each sequence, then T: int64 [B + 1], on the host."""

    @property
    def max_seqlen(self) -> int:
        """Length of the longest sequence."""

    @property
    def cu_seqlens(self) -> Tensor:
        """First row of each sequence, then T: int32 [B + 1], on the tensors' device."""

    def tiles(self, block: int) -> Tensor:
        """Blocks of rows, int32 [n, 2]: (sequence, block)."""

    def __len__(self) -> int: ...


class Selection(Protocol):
    """M of the packed rows, ascending."""

    @property
    def rows(self) -> Tensor:
        """The selected rows, [M], on the tensors' device."""

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The selected rows, int64 [M], on the host."""

    @property
    def within(self) -> Layout:
        """The selected rows alone, as sequences."""

    @property
    def places(self) -> Tensor:
        """The position of each selected row within its sequence, int32 [M]."""

    def shared_with(self, other: Any) -> tuple[Tensor, Selection]:
        """Return the rows in both selections: indices in this one, int64, and a selection."""

    def __len__(self) -> int: ...


def rows_apart(x: Tensor) -> Tensor:
    """Return [T, H, D] whose tokens are [H, D] contiguous; copies where they are not.

    Tokens are less than 2^24 elements apart: kernels count within a block of 128 in 32 bits.
    """
    head_dim = x.shape[2]
    side_by_side = x.stride(2) == 1 and (x.stride(1) == head_dim or x.shape[1] == 1)
    return x if side_by_side and x.stride(0) < 2**24 else x.contiguous()


@overload
def contiguous(x: Tensor) -> Tensor: ...
@overload
def contiguous(x: None) -> None: ...
@overload
def contiguous(x: Tensor | None) -> Tensor | None: ...
def contiguous(x: Tensor | None) -> Tensor | None:
    """Return a contiguous tensor, which a kernel may read without strides; None for None."""
    return None if x is None else x.contiguous()
