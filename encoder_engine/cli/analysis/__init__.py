"""Subcommands that analyse a model."""
