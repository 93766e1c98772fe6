"""Measures what an encoder has learned: senses, geometry, probes, heads, languages."""
