"""Triton kernels of a feed-forward layer's bias and activation, gated or not."""
