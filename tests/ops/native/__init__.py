"""Tests of the C++ extension's operations."""
