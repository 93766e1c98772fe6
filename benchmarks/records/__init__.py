"""Recorded results: reading, comparing, withdrawing them."""
