"""Cleans texts: removes duplicates, personal data and languages, and records what was dropped."""
