"""Cleans texts: drops duplicates and other languages, masks personal data, counts what it did."""
