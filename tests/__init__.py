"""Tests of encoder-engine; the tree mirrors the package."""
