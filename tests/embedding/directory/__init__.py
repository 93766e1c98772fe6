"""Tests of embedding/directory."""
