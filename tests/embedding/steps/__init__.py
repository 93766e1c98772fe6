"""Tests of embedding/steps."""
