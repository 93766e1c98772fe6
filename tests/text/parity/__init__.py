"""Tests of text/parity."""
