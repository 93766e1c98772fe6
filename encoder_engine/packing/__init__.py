"""Packed batches, the engine's form of text; the only code that handles padding.

B sequences of lengths ``n_0 .. n_{B-1}`` are concatenated in tensors of ``T = sum(n_i)`` rows.
``cu_seqlens`` is ``[0, n_0, n_0 + n_1, .., T]``, as in FlashAttention's variable-length interface
(Dao 2023).

Each name is imported at its first use: ``token_rows`` and ``pooling_modes`` need no PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encoder_engine.packing.batch import PackedBatch, pack
    from encoder_engine.packing.padding import pad, unpad
    from encoder_engine.packing.selection import SelectedRows
    from encoder_engine.packing.sequences import Sequences

__all__ = ["PackedBatch", "SelectedRows", "Sequences", "pack", "pad", "unpad"]

# The module that each name is in.
_MODULES = {
    "PackedBatch": "batch",
    "SelectedRows": "selection",
    "Sequences": "sequences",
    "pack": "batch",
    "pad": "padding",
    "unpad": "padding",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
