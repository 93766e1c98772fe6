"""Tests of benchmarks/targets."""
