"""Pretraining: what the training loop does with a corpus and objectives."""
