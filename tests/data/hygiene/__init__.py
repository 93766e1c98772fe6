"""Corpus hygiene."""
