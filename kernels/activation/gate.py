"""The activations that gate a feed-forward layer and their derivatives, for the kernels."""

from __future__ import annotations

import triton
import triton.language as tl

from .gelu import gelu_share, gelu_slope


@triton.jit
def passed_share(x, ACTIVATION: tl.constexpr):
    """Give the share of x that the activation lets through; ``x`` times it is the activation."""
    if ACTIVATION == "silu":
        # The logistic function, from the exponential that cannot overflow.
        decay = tl.exp(-tl.abs(x))
        return tl.where(x < 0.0, decay, 1.0) / (1.0 + decay)
    return gelu_share(x, ACTIVATION == "gelu_tanh")


@triton.jit
def slope(x, share, ACTIVATION: tl.constexpr):
    """Give the activation's derivative at x, where ``share`` is let through."""
    if ACTIVATION == "silu":
        return share + x * share * (1.0 - share)
    return gelu_slope(x, share, ACTIVATION == "gelu_tanh")
