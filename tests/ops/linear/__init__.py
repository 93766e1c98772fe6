"""Tests of ops/linear."""
