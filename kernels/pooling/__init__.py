"""Pooling of rows to one vector per sequence."""
