"""Computes a digest of weights, the same wherever and however they are stored."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["weights_sha256"]


def weights_sha256(tensors: Mapping[str, torch.Tensor], facts: str = "") -> str:
    """Return the SHA-256 of the text ``facts`` and each tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
