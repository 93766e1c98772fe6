"""Tests of causal rerankers."""
