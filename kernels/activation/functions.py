"""The activations and their derivatives, for the kernels: all in float32."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + exp(-x)), by exp(-|x|), which cannot overflow."""
    decay = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, decay, 1.0) / (1.0 + decay)


@triton.jit
def sigmoid_derivative(x):
    """Return the sigmoid's derivative at x; p (1 - p) would cancel where p is near 1."""
    decay = tl.exp(-tl.abs(x))
    return decay / ((1.0 + decay) * (1.0 + decay))


@triton.jit
def normal_decay(x):
    """Return exp(-x^2 / 2)."""
    size = bounded_size(x)
    return tl.exp2(-0.7213475204444817 * size * size)


@triton.jit
def bounded_size(x):
    """Return ``min(|x|, 1e18)``, whose square is finite."""
    return tl.minimum(tl.abs(x), 1e18)


@triton.jit
def normal_tail(x):
    """Return Phi(-|x|), the normal distribution's tail, for float32.

    It is exp(-x^2 / 2) times a polynomial in t = 1 / sqrt(1 + c |x| + d x^2): Abramowitz and
    Stegun's 7.1.26 with another t, which is computed without a division. Its error, times x, is at
    most 1.8e-7; that of ``0.5 * (1 + erf)`` in float32, times x, is 2.4e-7.
    """
    size = bounded_size(x)
    t = tl.rsqrt(1.0 + size * (0.6253 + 0.1108 * size))
    p = 0.0362627655 + 0.184666812 * t
    p = 0.149460584 + p * t
    p = 0.129609749 + p * t
    return normal_decay(x) * (p * t)


@triton.jit
def gelu_multiplier(x, TANH: tl.constexpr):
    """Return GELU(x) / x: Phi(x), the normal distribution function, or if TANH its tanh form."""
    if TANH:
        # (1 + tanh u) / 2 = sigmoid(2 u), which does not cancel for u << 0.
        return sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tail = normal_tail(x)
    return tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def gelu_derivative(x, factor, TANH: tl.constexpr):
    """Return GELU's derivative at x; ``factor``: GELU(x) / x."""
    if TANH:
        bend = sigmoid_derivative(1.5957691216057308 * (x + 0.044715 * x * x * x))
        steep = 1.5957691216057308 * (1.0 + 0.134145 * x * x)
        # For large |x| bend is 0 and steep may be infinite.
        return factor + tl.where(bend == 0.0, 0.0, x * bend * steep)
    return factor + x * (0.3989422804014327 * normal_decay(x))


@triton.jit
def multiplier(x, ACTIVATION: tl.constexpr):
    """Return activation(x) / x."""
    if ACTIVATION == "silu":
        return sigmoid(x)
    return gelu_multiplier(x, ACTIVATION == "gelu_tanh")


@triton.jit
def derivative(x, factor, ACTIVATION: tl.constexpr):
    """Return the activation's derivative at x; ``factor``: activation(x) / x."""
    if ACTIVATION == "silu":
        return factor + x * sigmoid_derivative(x)
    return gelu_derivative(x, factor, ACTIVATION == "gelu_tanh")
