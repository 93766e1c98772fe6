"""Kinds of results that models compute from texts, such as dense vectors or scores: a file each."""
