"""Subcommands for corpora: cleaning, and datasheets."""
