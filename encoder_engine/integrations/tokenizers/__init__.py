"""Encodes the calls of transformers' fast tokenizers by this engine."""
