"""Subcommands for corpora: cleaning, and cards."""
