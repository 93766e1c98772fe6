"""Replaces the computation of other libraries' models in place, and restores it."""
