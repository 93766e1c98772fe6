"""Verbs that write training rows made of plain texts."""
