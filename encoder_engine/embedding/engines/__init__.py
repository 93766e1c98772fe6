"""Engines: compute vectors and scores of token rows, with PyTorch or without."""
