"""The names of the noises; apart from their code, so that the command line needs no NumPy."""

from __future__ import annotations

from typing import Literal, get_args

__all__ = ["NOISE_KINDS", "NoiseKind"]

NoiseKind = Literal[
    "span-corruption",
    "token-masking",
    "token-deletion",
    "text-infilling",
    "sentence-permutation",
    "document-rotation",
]
NOISE_KINDS: tuple[NoiseKind, ...] = get_args(NoiseKind)
