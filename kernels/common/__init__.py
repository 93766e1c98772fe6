"""Launch shapes, layouts and dropout that the kernels share."""
