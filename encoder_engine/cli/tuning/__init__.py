"""Subcommands for fine-tuned models."""
