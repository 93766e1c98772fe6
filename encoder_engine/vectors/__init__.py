"""Stored vectors: writing, verified reading, search, maps."""
