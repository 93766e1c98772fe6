"""Tests of the C++ core by itself."""
