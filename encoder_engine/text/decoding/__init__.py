"""Decodes token ids to text."""
