"""Specifications of tokenizers: immutable values."""
