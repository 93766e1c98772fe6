"""Triton kernels of bidirectional or causal attention over packed sequences."""
