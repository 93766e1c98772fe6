"""Cleans texts: duplicates, personal data, languages, and the record of what was dropped."""
