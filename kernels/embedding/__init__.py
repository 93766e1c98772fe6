"""Triton kernels of the embedding layer: token, position and segment rows, added and normalised."""
