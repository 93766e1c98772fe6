"""Query, key and value heads as views of one projection, without copies.

On a GPU the attention kernels write the gradients of all three to one tensor, which is then that of
the projection. PyTorch's own split would copy the three together: a tenth of what a step of
BERT-base moves beside its matrix products. Rotary embeddings therefore turn query and key in
place, within the projection, and their gradients likewise.

Dimensions: T tokens, H heads, K heads of keys, D width of a head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from encoder_engine.kernels.attention.joined import are_joined, heads_apart
from encoder_engine.ops import gpu
from encoder_engine.ops.registry import is_transformed, requested
from encoder_engine.ops.rotary import check_rotary, rotary

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Turn", "split_heads"]


class Turn(NamedTuple):
    """The arguments of a rotary embedding: angle table and positions, see :func:`rotary`."""

    table_PD: Tensor
    position_ids_T: Tensor


def split_heads(
    projected_TN: Tensor, head_dim: int, key_heads: int, turn: Turn | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Split a projection [T, (H + 2 K) D] into query [T, H, D], key and value [T, K, D].

    ``head_dim``: D; ``key_heads``: K. ``turn``: also rotate query and key by :func:`rotary`, and
    raise what it raises. Nothing else may then read the projection, which training on a GPU rotates
    in place.
    """
    if not _joins_gradients(projected_TN):
        query, key, value = heads_apart(_heads(projected_TN, head_dim), key_heads)
        if turn is not None:
            query, key = rotary(query, key, *turn)
        return query, key, value
    if turn is not None:
        query, key, _ = heads_apart(_heads(projected_TN.detach(), head_dim), key_heads)
        check_rotary(query, key, *turn)
        projected_TN = _Turn.apply(  # type: ignore[no-untyped-call]
            projected_TN, head_dim, key_heads, *turn
        )
    split: tuple[Tensor, Tensor, Tensor] = _Split.apply(  # type: ignore[no-untyped-call]
        _heads(projected_TN, head_dim), key_heads
    )
    return split


def _joins_gradients(projected_TN: Tensor) -> bool:
    if not (gpu.is_by_triton(projected_TN) and projected_TN.requires_grad) or requested():
        return False
    if projected_TN.is_leaf or not torch.is_grad_enabled():
        # Others may read the projection after this call, so it must not be turned in place.
        return False
    return not (torch.compiler.is_compiling() or is_transformed())


def _heads(projected_TN: Tensor, head_dim: int) -> Tensor:
    return projected_TN.view(-1, projected_TN.shape[1] // head_dim, head_dim)


class _Turn(torch.autograd.Function):
    """Rotates query and key in place within their projection."""

    @staticmethod
    def forward(
        ctx: Any,
        projected_TN: Tensor,
        head_dim: int,
        key_heads: int,
        table_PD: Tensor,
        position_ids_T: Tensor,
    ) -> Tensor:
        from encoder_engine.kernels.rotary.operator import turn_in_place

        ctx.save_for_backward(table_PD, position_ids_T)
        ctx.head_dim, ctx.key_heads = head_dim, key_heads
        ctx.mark_dirty(projected_TN)
        heads_THD = _heads(projected_TN, head_dim)
        turn_in_place(heads_THD, key_heads, table_PD, position_ids_T, False)
        return projected_TN

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_TN: Tensor) -> tuple[Tensor | None, ...]:
        from encoder_engine.kernels.rotary.operator import turn_in_place

        # Made by the split's backward for this function alone, so it may be changed in place.
        heads_THD = _heads(grad_TN, ctx.head_dim)
        turn_in_place(heads_THD, ctx.key_heads, *ctx.saved_tensors, True)
        return grad_TN, None, None, None, None


class _Split(torch.autograd.Function):
    """Splits a projection into views of heads; backward joins gradients, if possible uncopied."""

    @staticmethod
    def forward(_: Any, heads_THD: Tensor, key_heads: int) -> tuple[Tensor, ...]:
        split: tuple[Tensor, ...] = heads_apart(heads_THD, key_heads)
        return split

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> tuple[Tensor, None]:
        query = grads[0]
        if torch.is_grad_enabled() or not are_joined(*grads):
            return torch.cat(grads, dim=1), None
        num_heads = sum(grad.shape[1] for grad in grads)
        shape = (len(query), num_heads, query.shape[2])
        return query.as_strided(shape, (num_heads * shape[2], shape[2], 1)), None
