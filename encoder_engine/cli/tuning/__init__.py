"""Verbs of fine-tuned models."""
