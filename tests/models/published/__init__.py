"""Tests of checkpoints whose published files differ from what transformers saves."""
