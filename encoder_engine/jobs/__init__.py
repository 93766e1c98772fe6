"""Embedding of files into stored vectors: in constant memory, resumable, by many processes."""
