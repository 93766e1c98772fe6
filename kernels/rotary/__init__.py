"""Rotary position embeddings of query and key."""
