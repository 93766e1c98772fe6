"""What the kernels share."""
