"""Tests of the compiled encoder."""
