"""Pretraining on a corpus by objectives, with the training loop."""
