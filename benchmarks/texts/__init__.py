"""Texts that cases read."""
