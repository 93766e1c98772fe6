"""The float64 reference of the dense layer, which has no Triton kernel: a GPU uses cuBLAS."""
