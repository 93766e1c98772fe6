"""Kinds of results that models make of texts, such as dense vectors or scores: a file each."""
