"""Extractive question answering: the decoding of logits into answers."""
