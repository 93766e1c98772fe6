"""Tests of runs over files."""
