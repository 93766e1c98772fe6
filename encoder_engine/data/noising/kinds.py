"""The names of the noises, in a file that needs no NumPy, for the command line."""

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
