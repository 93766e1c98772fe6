"""Benchmark cases: one file per subject, each with ``case_specs()``."""
