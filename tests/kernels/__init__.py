"""Tests of kernels as operators and as compiled code."""
