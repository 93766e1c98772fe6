"""Targets, and the recorded quantities they are held against."""
