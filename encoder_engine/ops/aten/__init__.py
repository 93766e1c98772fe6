"""Implementations by PyTorch's own operators: they run wherever PyTorch does."""
