"""The offsets of a call's rows, and the blocks of rows that each kernel works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..common.launch import next_power_of_2
from .config import Extras
from .positions import position_constants, position_terms

if TYPE_CHECKING:
    from torch import Tensor

    from .differentiable import Call

WIDEST_WINDOW = 2**30


class Blocks(NamedTuple):
    """The offsets of an attention call's packed sequences, and the tiles that kernels work on.

    All tensors are int32. Tiles are [n, 2]: each row has a sequence and the index of a block of
    rows within the sequence. These are empty: ``places`` where every row is a query,
    ``global_places`` where no key is global, tiles for backward where no gradient is needed, and
    ``sequence_tiles`` unless the kernel in Gluon computes the gradients.
    """

    cu_seqlens: Tensor  # [B + 1]
    forward_tiles: Tensor  # blocks of queries
    query_tiles: Tensor  # blocks of queries, for backward
    key_tiles: Tensor  # blocks of keys, for backward
    cu_queries: Tensor  # [B + 1]; of all rows where every row is a query
    places: Tensor  # [M] of each query, within its sequence
    cu_globals: Tensor  # [B + 1]
    global_places: Tensor  # [G]
    global_tiles: Tensor  # blocks of global keys
    sequence_tiles: Tensor  # whole sequences, where the kernel in Gluon computes gradients

    def extras(self, call: Call) -> Extras:
        """Return the options of a call by which launch shapes are chosen."""
        return Extras(
            dropout=call.seed is not None,
            bias=call.bias_HR is not None or call.entries_R is not None,
            listed=self.places.shape[0] > 0 or self.global_places.shape[0] > 0,
            positions=call.entries_R is not None,
            masked=call.window is not None or call.causal,
            slopes=call.slopes_H is not None,
        )

    def constants(self, call: Call) -> dict[str, Any]:
        """Return the compile-time constants of a call for kernels, besides the launch shape's."""
        _, num_heads, head_dim = call.query_MHD.shape
        return {
            # Offsets known at compile time are immediates of the loads; a model has few strides.
            "QUERY_STRIDE": call.query_MHD.stride(0),
            "KEY_STRIDE": call.key_TKD.stride(0),
            "VALUE_STRIDE": call.value_TKD.stride(0),
            "NUM_HEADS": num_heads,
            "GROUP": call.group,
            "HEAD_DIM": head_dim,
            "BLOCK_DIM": max(16, next_power_of_2(head_dim)),
            # Positions have 32 bits: the sum of a position and a window must fit into them.
            "WINDOW": -1 if call.window is None else min(call.window, WIDEST_WINDOW),
            "CAUSAL": call.causal,
            "SUBSET": self.places.shape[0] > 0,
            "HAS_SLOPES": call.slopes_H is not None,
            "HAS_BIAS": call.bias_HR is not None,
            **position_constants(call),
            "HAS_DROPOUT": call.seed is not None,
            "PRECISION": "ieee",
        }

    def gradient_constants(self, call: Call) -> dict[str, Any]:
        """Return the compile-time constants for gradient kernels: :meth:`constants` and JOINED."""
        return self.constants(call) | {"JOINED": call.joined}

    def terms(self, call: Call) -> tuple[Tensor | None, ...]:
        """Return a kernel's arguments bias, slopes, seed, and then :func:`position_terms`."""
        return (call.bias_HR, call.slopes_H, call.seed, *position_terms(call))

    def numbers(self, call: Call) -> tuple[Any, ...]:
        """Return a kernel's last arguments: number of queries, reach of bias, scale, dropout."""
        reach = 0 if call.bias_HR is None else call.bias_HR.shape[1] // 2
        return (call.query_MHD.shape[0], reach, call.scale, call.dropout)
