"""Tests of text/training."""
