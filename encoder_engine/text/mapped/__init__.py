"""Vocabularies that stay in the compiled file they were read from."""
