"""Heads of transformers over an accelerated encoder, computed of the rows that they read."""
