"""Tests of benchmarks/records."""
