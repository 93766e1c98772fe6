"""Noised texts for sequence-to-sequence pretraining, and query-document pairs from plain text."""
