"""Engines compute vectors, scores and logits of token rows, with PyTorch or without."""
