"""Bias and activation of a feed-forward layer."""
