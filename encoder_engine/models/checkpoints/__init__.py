"""Reads and writes checkpoints in Hugging Face layout."""
