"""Tests of what differs in training on a GPU, as far as a CPU can stand for it."""
