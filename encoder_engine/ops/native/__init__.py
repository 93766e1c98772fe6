"""Implementations by the C++ extension."""
