"""Hashes the memory of tensors, to detect changes of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from encoder_engine import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["hash_memory"]


def hash_memory(tensors: Sequence[Tensor]) -> int:
    """Return a 64-bit hash of the bytes of contiguous CPU tensors, at memory bandwidth.

    A change within one word of 8 bytes always changes the hash; other changes collide once in 2^64.
    The hash is not cryptographic. It is safe that other threads give the tensors other memory while
    the hash is computed.
    """
    # Kept until the hash is done: another thread's `tensor.data = ...` would free the memory.
    held = [tensor.detach() for tensor in tensors]
    places = [(tensor.data_ptr(), tensor.nbytes) for tensor in held]
    return _native.hash_memory(places, torch.get_num_threads())
