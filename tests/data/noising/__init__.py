"""Tests of noised texts."""
