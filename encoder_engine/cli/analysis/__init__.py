"""Verbs that analyse a model."""
