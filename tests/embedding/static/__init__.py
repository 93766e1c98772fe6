"""Tests of static embeddings."""
