"""Implementations by PyTorch's own operators, which run on every device that PyTorch supports."""
