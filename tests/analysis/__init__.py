"""Tests of analysis: senses, geometry, probes, heads, languages."""
