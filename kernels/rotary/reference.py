"""Rotary position embeddings straight from their definition, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotary(
    query_THD: Tensor, key_TKD: Tensor, table_PD: Tensor, position_ids_T: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``(x[i] + j x[i + D / 2]) * (cos + j sin)`` of the token's position."""
    cosine, sine = table_PD.double()[position_ids_T.long()].chunk(2, dim=1)
    turn_T1h = torch.complex(cosine, sine)[:, None, :]

    def rotated(x: Tensor) -> Tensor:
        real, imaginary = x.double().chunk(2, dim=2)
        z = torch.complex(real, imaginary) * turn_T1h
        return torch.cat((z.real, z.imag), dim=2).to(x.dtype)

    return rotated(query_THD), rotated(key_TKD)
