"""Heads of transformers on an accelerated encoder, which computes only rows that they read."""
