"""The float64 reference of the dense layer, for tests; there is no Triton kernel."""
