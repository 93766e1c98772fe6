"""Tests of ops/attention."""
