"""Tests of the package; those of the benchmarks are in benchmarks/tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
