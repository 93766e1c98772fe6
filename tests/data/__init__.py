"""Tests of training text on disk and of the way to batches."""
