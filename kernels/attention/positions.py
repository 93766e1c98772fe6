"""The products of content and position of disentangled attention (He et al. 2021).

How it works: the score of query i and key j adds ``q_i . K[n] + k_j . Q[n]``, n the number of the
distance j - i. Both are products of N vectors, ``c2p`` [M, H, N] and ``p2c`` [T, H, N], computed
before the kernels by cuBLAS and again in backward, so that no layer keeps them. The kernels of
attention read one entry of each for a score. ``grad_positions.py`` has their gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from .differentiable import Call


def position_constants(call: Call) -> dict[str, int]:
    """Return the compile-time constants of disentangled attention; all are 0 without it."""
    given = (call.position_key_NHD, call.position_query_NHD)
    if call.entries_R is None:
        return {"POSITIONS": 0, "ENTRIES_REACH": 0, "NUM_ENTRIES": 0}
    vectors = next(x for x in given if x is not None)
    return {
        "POSITIONS": sum(bit for bit, x in zip((1, 2), given, strict=True) if x is not None),
        "ENTRIES_REACH": len(call.entries_R) // 2,
        "NUM_ENTRIES": len(vectors),
    }


def position_terms(call: Call) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return a call's ``c2p`` and ``p2c``, and the index of each distance's vector, int32.

    All are None without disentangled attention.
    """
    if call.entries_R is None:
        return None, None, None
    return (
        _products(call.query_MHD, call.position_key_NHD),
        _products(keys_of_heads(call), call.position_query_NHD),
        call.entries_R.int(),
    )


def _products(rows_MHD: Tensor, vectors_NHD: Tensor | None) -> Tensor | None:
    """Return the products of rows and position vectors, ``einsum("mhd,nhd->mhn")``, contiguous."""
    if vectors_NHD is None:
        return None
    products_MHN = rows_MHD.new_empty(*rows_MHD.shape[:2], len(vectors_NHD))
    torch.bmm(
        rows_MHD.transpose(0, 1), vectors_NHD.permute(1, 2, 0), out=products_MHN.transpose(0, 1)
    )
    return products_MHN


def keys_of_heads(call: Call) -> Tensor:
    """Return the keys repeated, one for each query head: [T, H, D]."""
    key = call.key_TKD
    return key if call.group == 1 else key.repeat_interleave(call.group, dim=1)
