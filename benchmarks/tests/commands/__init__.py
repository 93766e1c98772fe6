"""Tests of benchmarks/commands."""
