"""Tests of text/formats."""
