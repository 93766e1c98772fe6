"""Integrations into other libraries, each of which is imported only when used."""
