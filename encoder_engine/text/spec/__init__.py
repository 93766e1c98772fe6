"""Specifications of tokenizers, as values."""
