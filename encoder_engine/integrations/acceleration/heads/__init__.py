"""Heads of transformers over an accelerated encoder, which computes only the rows they read."""
