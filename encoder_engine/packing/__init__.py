"""Packed batches, the engine's representation of texts, and conversions from and to padded ones.

B sequences of lengths ``n_0 .. n_{B-1}`` are concatenated in tensors of ``T = sum(n_i)`` rows.
``cu_seqlens`` is ``[0, n_0, n_0 + n_1, .., T]``, as in FlashAttention's variable-length interface
(Dao 2023).

Each name is imported at its first use: ``token_rows``, ``pooling_modes``, ``clean`` and
``draws`` need no PyTorch. The names of this package do, and raise :class:`MissingDependencyError`
without it.
"""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.packing.batch import PackedBatch, pack
    from encoder_engine.packing.padding import pad, unpad
    from encoder_engine.packing.selection import SelectedRows
    from encoder_engine.packing.sequences import Sequences

__all__ = ["PackedBatch", "SelectedRows", "Sequences", "pack", "pad", "unpad"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "PackedBatch": "batch",
        "SelectedRows": "selection",
        "Sequences": "sequences",
        "pack": "batch",
        "pad": "padding",
        "unpad": "padding",
    },
)
