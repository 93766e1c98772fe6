"""Recorded results: reading and comparing them."""
