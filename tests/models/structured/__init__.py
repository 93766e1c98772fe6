"""Heads whose loss is of whole sequences or of spans."""
