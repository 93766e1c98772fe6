"""Targets, and the recorded quantities that they are compared with."""
