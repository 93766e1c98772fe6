"""Reads checkpoints in Hugging Face layout as NumPy arrays: files, names, shapes and values."""
