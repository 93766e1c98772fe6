"""Integrations with other libraries; each library is imported only when it is used."""
