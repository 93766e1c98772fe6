"""Tests of benchmarks/cases."""
