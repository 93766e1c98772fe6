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
        """The first row of each sequence, then T: int64 [B + 1], in the CPU's memory."""

    @property
    def max_seqlen(self) -> int:
        """Length of the longest sequence."""

    @property
    def cu_seqlens(self) -> Tensor:
        """First row of each sequence, then T: int32 [B + 1], on the tensors' device."""

    def tiles(self, block: int) -> Tensor:
        """Return all blocks of ``block`` rows: int32 [n, 2], sequence and block within it."""

    def __len__(self) -> int: ...


class Selection(Protocol):
    """A selection of M of a batch's packed rows, in ascending order."""

    @property
    def rows(self) -> Tensor:
        """The selected rows, [M], on the tensors' device."""

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """The selected rows, int64 [M], in the CPU's memory."""

    @property
    def within(self) -> Layout:
        """The layout of the selected rows alone, packed: their sequences' offsets."""

    @property
    def places(self) -> Tensor:
        """The position of each selected row within its sequence, int32 [M]."""

    def shared_with(self, other: Any) -> tuple[Tensor, Selection]:
        """Return the rows that are in both selections: their indices in this one, and a selection.

        The indices are int64. The returned selection has these rows alone.
        """

    def __len__(self) -> int: ...


def rows_apart(x: Tensor) -> Tensor:
    """Return ``x`` [T, H, D] if each token's [H, D] is contiguous, else a contiguous copy.

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
    """Return ``x`` contiguous, so that a kernel can read it without strides; None for None."""
    return None if x is None else x.contiguous()
