"""Benchmark cases of single operations."""
