"""Tests of reports and drawings."""
