"""The activations and their derivatives, for the kernels: all in float32."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def logistic(x):
    """Give 1 / (1 + exp(-x)), from the exponential that cannot overflow."""
    decay = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, decay, 1.0) / (1.0 + decay)


@triton.jit
def logistic_slope(x):
    """Give its derivative. As p (1 - p) it would lose its digits where p is nearly 1."""
    decay = tl.exp(-tl.abs(x))
    return decay / ((1.0 + decay) * (1.0 + decay))


@triton.jit
def gelu_share(x, TANH: tl.constexpr):
    """Give the share of x that GELU lets through: Phi(x), or the paper's approximation of it."""
    if TANH:
        # (1 + tanh u) / 2 is the logistic function of 2 u, which loses nothing at the low end.
        return logistic(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_slope(x, share, TANH: tl.constexpr):
    """Give the derivative at x, where ``share`` is let through."""
    if TANH:
        bend = logistic_slope(1.5957691216057308 * (x + 0.044715 * x * x * x))
        steep = 1.5957691216057308 * (1.0 + 0.134145 * x * x)
        # Far out the first factor is 0 and the other may be infinite.
        return share + tl.where(bend == 0.0, 0.0, x * bend * steep)
    return share + x * (0.3989422804014327 * tl.exp(-0.5 * x * x))


@triton.jit
def passed_share(x, ACTIVATION: tl.constexpr):
    """Give the share of x that the activation lets through; ``x`` times it is the activation."""
    if ACTIVATION == "silu":
        return logistic(x)
    return gelu_share(x, ACTIVATION == "gelu_tanh")


@triton.jit
def slope(x, share, ACTIVATION: tl.constexpr):
    """Give the activation's derivative at x, where ``share`` is let through."""
    if ACTIVATION == "silu":
        return share + x * logistic_slope(x)
    return gelu_slope(x, share, ACTIVATION == "gelu_tanh")
