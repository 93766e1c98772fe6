"""Tests of benchmarks/measuring."""
