"""Tests of pretraining."""
