"""The reference of the dense layer; on a GPU cuBLAS computes it."""
