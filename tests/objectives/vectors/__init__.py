"""Tests of losses of vectors and rankings."""
