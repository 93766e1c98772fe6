"""Readers and writers of tokenizer files: a module for each format."""
