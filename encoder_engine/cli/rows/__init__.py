"""Subcommands that make training rows from plain texts."""
