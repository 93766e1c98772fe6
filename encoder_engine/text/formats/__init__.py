"""Readers and writers of tokenizer files: one file a format."""
