"""Benchmark cases: one file a subject, each with case_specs()."""
