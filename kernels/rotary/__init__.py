"""Triton kernels of rotary position embeddings of query and key."""
