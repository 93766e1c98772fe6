"""Launch shapes, layouts and dropout, for all Triton kernels."""
