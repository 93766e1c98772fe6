"""Tests of opening."""
