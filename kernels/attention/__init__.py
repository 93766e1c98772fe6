"""Bidirectional attention over packed sequences."""
