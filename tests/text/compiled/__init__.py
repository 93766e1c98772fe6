"""Tests of text/compiled."""
