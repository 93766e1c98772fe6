"""Extractive question answering: the model, and the decoding of logits into answers."""
