"""Specifications of tokenizers: immutable values that readers of files make."""
