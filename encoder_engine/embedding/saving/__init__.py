"""Writes embedders as directories with model cards."""
