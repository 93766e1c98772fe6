"""Tests of benchmarks/report."""
