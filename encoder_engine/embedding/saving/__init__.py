"""Writes embedders as directories, with their cards."""
