"""Implementations of the operations by the C++ extension."""
