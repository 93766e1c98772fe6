"""Subcommands that read stored vectors, and write files derived from them."""
