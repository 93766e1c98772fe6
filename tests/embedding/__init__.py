"""Tests of embedding: directories, batches, files."""
