"""Triton kernels of dropout, residual add and layer or RMS norm in one pass."""
