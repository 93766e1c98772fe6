"""Extractive question answering: decodes a model's logits to answers."""
