"""Tests of benchmarks/jobs."""
