"""Verbs that read stored vectors and write beside them."""
