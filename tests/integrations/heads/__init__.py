"""Tests of heads over accelerated encoders."""
