"""Extractive question answering: the model, and answers from the logits of windows."""
