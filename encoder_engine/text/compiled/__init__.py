"""Compiled tokenizers: one file that is mapped and used where it lies."""
