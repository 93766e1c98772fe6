"""Subcommands that read stored vectors, and write files beside them."""
