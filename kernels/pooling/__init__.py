"""Triton kernels of pooling, which reduces the rows of each sequence to one vector."""
