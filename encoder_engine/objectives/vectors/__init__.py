"""Losses of text vectors and of rankings, as pure functions that return sums over texts."""
