"""Engines compute vectors, scores and logits of token ids, with PyTorch or without."""
