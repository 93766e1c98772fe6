"""Whether tensors still hold what they held: a 64-bit hash of their memory, by all threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["hash_memory"]


def hash_memory(tensors: Sequence[Tensor]) -> int:
    """Hash the bytes of contiguous tensors on the CPU, in order, at the speed of memory.

    Any change within one word of 8 bytes changes the result; other changes go unnoticed once in
    2^64. No defence against intent. Other threads may give the tensors other memory meanwhile.
    """
    # Held until the hash is made: another thread's `tensor.data = ...` lets go of the memory.
    held = [tensor.detach() for tensor in tensors]
    places = [(tensor.data_ptr(), tensor.nbytes) for tensor in held]
    return _native.hash_memory(places, torch.get_num_threads())
