"""Rotary position embeddings of query and key: the public function, and the table of angles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine import positions
from encoder_engine.errors import SequenceLengthError, ShapeError
from encoder_engine.ops import cpu, gpu
from encoder_engine.ops.registry import CallFacts, Operation, check_alike, plain

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["rotary", "rotary_table"]

_ROTARY = Operation(
    "rotary",
    CallFacts,
    (gpu.triton("rotary"), cpu.native("rotary"), *plain("rotary")),
)


def rotary_table(
    num_positions: int,
    head_dim: int,
    *,
    base: float,
    divisor: float = 1.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the table of :func:`rotary`: cosines, then sines, of ``position * base^(-2i/D)``.

    ``divisor``: divides all angles (position interpolation, Chen et al. 2023). Angles are computed
    in float64. Returns [P, D] in float32, or in ``dtype``. Raises :class:`ShapeError` for an odd
    ``head_dim``, and for sizes, bases and divisors that are not positive.
    """
    import torch

    table = positions.rotary_table(num_positions, head_dim, base=base, divisor=divisor)
    return torch.from_numpy(table).to(dtype=dtype or torch.float32).to(device)


def rotary(
    query_THD: Tensor,
    key_TKD: Tensor,
    table_PD: Tensor,
    position_ids_T: Tensor,
    *,
    implementation: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotate query and key by their tokens' positions (RoPE, Su et al. 2021).

    ``y[i] = x[i] cos - x[i + D/2] sin`` and ``y[i + D/2] = x[i + D/2] cos + x[i] sin``

    ``query_THD``: [T, H, D].
    ``key_TKD``: [T, K, D], K heads.
    ``table_PD``: from :func:`rotary_table`, in float32 (float64 for float64).
    ``position_ids_T``: int32 or int64 [T]; for a packed batch ``sequences.positions``.
    Returns query and key, rotated and contiguous, each in its dtype; computed in the table's dtype
    and rounded once.

    Raises :class:`ShapeError`. On a CPU outside of torch.compile also raises
    :class:`SequenceLengthError` for a position outside the table. On a GPU values are not read
    back: such a token becomes NaN (``triton``) or fails torch's device-side assertion (``aten``,
    for which a negative position counts from the table's end).
    """
    check_rotary(query_THD, key_TKD, table_PD, position_ids_T)
    function = _ROTARY.find(implementation, query_THD, key_TKD)
    turned: tuple[Tensor, Tensor] = function(query_THD, key_TKD, table_PD, position_ids_T)
    return turned


def check_rotary(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> None:
    """Raise the exceptions of :func:`rotary` for invalid arguments."""
    _check_shapes(query_THD, key_TKD, table_PD, position_ids_T)
    _check_positions(position_ids_T, table_PD.shape[0])


def _check_shapes(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> None:
    import torch

    shapes = query_THD.shape, key_TKD.shape
    if len(shapes[0]) != 3 or len(shapes[1]) != 3 or shapes[0][::2] != shapes[1][::2]:
        raise ShapeError(
            f"query must be [T, H, D] and key [T, K, D], got {list(shapes[0])} and "
            f"{list(shapes[1])}"
        )
    check_alike(query_THD, key=key_TKD)
    if table_PD.dim() != 2 or table_PD.shape[1] != shapes[0][2] or shapes[0][2] % 2:
        raise ShapeError(
            f"the table is {list(table_PD.shape)}, for heads of {shapes[0][2]} features it must be "
            "[P, D] with D even"
        )
    wide = torch.promote_types(query_THD.dtype, torch.float32)
    if table_PD.dtype != wide or table_PD.device != query_THD.device:
        raise ShapeError(
            f"the table is {table_PD.dtype} on {table_PD.device}, for a {query_THD.dtype} query on "
            f"{query_THD.device} it must be {wide} there"
        )
    if position_ids_T.shape != shapes[0][:1] or position_ids_T.device != query_THD.device:
        raise ShapeError(
            f"position_ids is {list(position_ids_T.shape)} on {position_ids_T.device}, query has "
            f"{shapes[0][0]} rows on {query_THD.device}"
        )
    if position_ids_T.dtype not in (torch.int32, torch.int64):
        raise ShapeError(f"position_ids must be int32 or int64, got {position_ids_T.dtype}")


def _check_positions(position_ids_T: Tensor, num_positions: int) -> None:
    import torch

    if torch.compiler.is_compiling() or position_ids_T.device.type != "cpu":
        return
    wrong = (position_ids_T < 0) | (position_ids_T >= num_positions)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise SequenceLengthError(
            f"position_ids[{row}] is {int(position_ids_T[row])}, the table has positions 0 to "
            f"{num_positions - 1}",
            row=row,
        )
