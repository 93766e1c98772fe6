"""Texts, labelled rows and vocabularies that cases use."""
